import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from refused import refused

from meshtrial import paths
from meshtrial.errors import RecordError
from meshtrial.site.documents import anchor_of, write_documents

README = """# The *first* page

[method](docs/method.md#a-test-one-sided), [data](data/README.md), [licence](LICENSE), [out](https://example.org/a.md)
[above](../secret.md) and <b>raw</b>

![a picture](docs/picture.svg)

| a | b |
|---|---|
| `x` | 2 |

```python
def f() -> int: ...
```

```nonsense
x < y
```
"""
METHOD = """# Method

## A test, one-sided

## Same

## Same

[back](../README.md) [not there](gone.md)
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    files = {
        "README.md": README,
        "docs/method.md": METHOD,
        "docs/picture.svg": "<svg/>",
        "data/README.md": "# Data",
        "LICENSE": "text",
    }
    for name, text in files.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "secret.md").write_text("# Secret")
    return tmp_path / "checkout"


def test_pages_and_what_they_link_keep_their_places(checkout, tmp_path):
    made = write_documents(checkout, tmp_path / "site")
    names = ["README.html", "docs/method.html", "data/README.html"]
    assert [path.relative_to(tmp_path / "site").as_posix() for path in made] == names
    assert (tmp_path / "site" / "LICENSE").read_text() == "text"
    assert (tmp_path / "site" / "docs" / "picture.svg").is_file()
    assert not list((tmp_path / "site").rglob("*secret*"))


def test_links_lead_to_pages_and_anchors(checkout, tmp_path):
    first, method, _ = (path.read_text() for path in write_documents(checkout, tmp_path / "site"))
    assert 'href="docs/method.html#a-test-one-sided"' in first
    assert 'id="a-test-one-sided"' in method
    assert re.findall(r'<h2 id="([^"]+)"', method) == ["a-test-one-sided", "same", "same-1"]
    assert 'href="../README.html"' in method
    assert 'href="https://example.org/a.md"' in first


def test_code_is_coloured_tables_scroll_and_raw_html_is_text(checkout, tmp_path):
    first = write_documents(checkout, tmp_path / "site")[0].read_text()
    assert '<span class="k">def</span>' in first
    assert "x &lt; y" in first
    assert re.search(
        r'<div class="mt-scroll" role="region" tabindex="0" aria-label="Table 1: The first page">\s*<table', first
    )
    assert "&lt;b&gt;raw" in first
    assert "<title>The first page · meshtrial</title>" in first


def test_a_page_names_itself_in_the_list_of_pages(checkout, tmp_path):
    method = write_documents(checkout, tmp_path / "site")[1].read_text()
    assert '<a href="../docs/method.html" aria-current="page">Method</a>' in method


def test_a_checkout_without_documentation_has_no_pages(tmp_path):
    assert write_documents(tmp_path, tmp_path / "site") == ()


def test_bytes_that_are_no_text_are_one_line(checkout, tmp_path):
    (checkout / "docs" / "method.md").write_bytes(b"\xff\xfe")
    with refused(RecordError, names=[checkout / "docs" / "method.md"]):
        write_documents(checkout, tmp_path / "site")


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("How to read a verdict", "how-to-read-a-verdict"),
        ("`docs/`: what, and why?", "docs-what-and-why"),
        ("CPU & memory", "cpu--memory"),
        ("A/A, 95 %", "aa-95-"),
    ],
)
def test_anchors_are_those_of_the_repository_viewer(heading, anchor):
    assert anchor_of(heading.replace("`", "")) == anchor


def test_every_link_of_our_own_pages_leads_somewhere(tmp_path):
    pages = write_documents(paths.CHECKOUT, tmp_path)
    assert {"README.html", "docs/method.html", "docs/how-to/publishing.html", "CONTRIBUTING.html"} <= {
        path.relative_to(tmp_path).as_posix() for path in pages
    }
    made_elsewhere = {tmp_path / name for name in ("index.html", "verdicts.json", "feed.xml")}
    wrong = []
    for page in pages:
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text()):
            target, _, anchor = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = (page.parent / target).resolve() if target else page
            if path not in made_elsewhere and not path.is_file():
                wrong.append(f"{page.name}: {link}")
            elif anchor and f'id="{anchor}"' not in path.read_text():
                wrong.append(f"{page.name}: {link} (no such anchor)")
    assert wrong == []


def test_pages_in_folders_below_list_their_neighbours_and_the_first_pages(checkout, tmp_path):
    for name in ("how-to/one", "how-to/two", "reference/three"):
        path = checkout / "docs" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {name}\n\n[method](../method.md#same)\n")
    write_documents(checkout, tmp_path / "site")
    text = (tmp_path / "site" / "docs" / "how-to" / "one.html").read_text()
    (listed,) = re.findall(r'<nav class="documents".*?</nav>', text, re.S)
    assert re.findall(r'href="([^"]+)"', listed) == [
        "../../README.html",
        "../../docs/how-to/one.html",
        "../../docs/how-to/two.html",
        "../../docs/method.html",
    ]
    assert 'href="../method.html#same"' in text
