"""Recorded studies as a static web site: files that any web server can serve.

The address of a study's page follows from its name, the time of its first run and its plan's digest, so it never
changes. The list of studies is read from the site itself: publishing another study adds a page and removes none.
"""
