"""Recorded studies as a static web site: files that any web server, or a folder, can serve.

A study's page lies where its name, the moment of its first run and its plan's digest say, so its address never changes.
What the site holds is read from the site itself: publishing one more study adds a page and takes none away.
"""
