"""Recorded studies and the documentation as a static web site: files that any web server, or a folder, can serve.

A study's page lies where its name, the moment of its first run and its plan's digest say, so its address never changes.
What the site holds is read from the site itself: publishing one more study adds a page and takes none away.
"""

from meshtrial.site.documents import write_documents
from meshtrial.site.feed import FEED, checked_base, write_feed
from meshtrial.site.index import INDEX, refuse_foreign, write_site_index
from meshtrial.site.published import Published, all_published
from meshtrial.site.study import address, kept_report, publish, says_the_same

__all__ = [
    "FEED",
    "INDEX",
    "Published",
    "address",
    "all_published",
    "checked_base",
    "kept_report",
    "publish",
    "refuse_foreign",
    "says_the_same",
    "write_documents",
    "write_feed",
    "write_site_index",
]
