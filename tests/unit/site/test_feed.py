import dataclasses
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree

import pytest
from refused import refused

from meshtrial.errors import UsageError
from meshtrial.site.index import checked_base, write_feed
from meshtrial.site.published import Published
from meshtrial.site.study import address

BASE = "https://example.org/meshes/"


@pytest.fixture
def study(data):
    return Published.of(data, address(data))


def test_a_study_is_an_item_with_a_link_that_stays(study, tmp_path):
    channel = ElementTree.parse(write_feed(tmp_path, [study], BASE)).getroot().find("channel")
    assert channel is not None
    assert {child.tag for child in channel} >= {"title", "link", "description", "item"}
    (item,) = channel.findall("item")
    assert item.findtext("link") == item.findtext("guid") == BASE + study.address
    assert parsedate_to_datetime(item.findtext("pubDate") or "") == study.moment
    assert " ".join(study.sentence.split()) in (item.findtext("description") or "")
    (own,) = channel.findall("{http://www.w3.org/2005/Atom}link")
    assert own.attrib == {"href": f"{BASE}feed.xml", "rel": "self", "type": "application/rss+xml"}


def test_signs_that_xml_cannot_hold_do_not_break_it(study, tmp_path):
    hostile = dataclasses.replace(study, study=dataclasses.replace(study.study, title="<a>&\x00\ud800\n]]>"))
    root = ElementTree.parse(write_feed(tmp_path, [hostile], BASE)).getroot()
    assert (root.findtext("channel/item/title") or "").startswith("<a>&")


def test_the_same_studies_give_the_same_bytes(study, tmp_path):
    first = write_feed(tmp_path, [study], BASE).read_bytes()
    assert write_feed(tmp_path, [study], BASE).read_bytes() == first


@pytest.mark.parametrize(
    ("given", "base"), [("https://a.org", "https://a.org/"), ("http://localhost:8000/x/", "http://localhost:8000/x/")]
)
def test_a_base_ends_in_a_slash(given, base):
    assert checked_base(given) == base


@pytest.mark.parametrize(
    "given", ["example.org", "ftp://a.org", "https://", "https://a.org/?q", "https://a b/", "http://["]
)
def test_what_is_no_base_is_refused(given):
    with refused(UsageError):
        checked_base(given)
