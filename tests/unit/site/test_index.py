import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import jsonschema
import pytest
from referencing import Registry, Resource
from refused import refused

from meshtrial import paths
from meshtrial.errors import UsageError
from meshtrial.site.index import refuse_foreign, write_site_index
from meshtrial.site.published import Published
from meshtrial.site.study import address

SCHEMAS = paths.CHECKOUT / "docs" / "schema"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def studies(data, other):
    return [Published.of(one, address(one)) for one in (other, data)]


def listed(page: str) -> list[str]:
    return re.findall(r"<li data-study=.*?</p>\n</li>", page, flags=re.DOTALL)


def test_every_study_is_listed_without_a_script(studies, tmp_path):
    page = write_site_index(tmp_path, studies).read_text()
    first, second = listed(page)
    assert 'id="controls" role="search" aria-label="Studies" hidden' in page
    assert f'href="./{studies[0].address}index.html"' in first
    assert f'href="./{studies[1].address}index.html"' in second
    for sentence in (*studies[1].headlines[0], studies[1].study.question, "21 November 2026", "one machine"):
        assert sentence in unescape(second)


def test_what_settles_most_is_first(studies, tmp_path):
    mesh, machine = studies
    for given in (studies, studies[::-1]):
        first, second = listed(write_site_index(tmp_path, given).read_text())
        assert f">{mesh.heading}</a>" in unescape(first)
        assert f">{machine.heading}</a>" in unescape(second)


def test_every_field_has_a_label_and_the_result_is_announced(studies, tmp_path):
    page = write_site_index(tmp_path, studies).read_text()
    fields = re.findall(r'<(?:input|select)[^>]* id="(\w+)"', page)
    assert fields == ["words", "study", "backend", "treatment"]
    assert re.findall(r'<label for="(\w+)"', page) == fields
    assert '<p class="found" id="found" role="status">2 studies' in page
    assert re.findall(r"<option>([^<]+)</option>", page).count("node-proxy") <= 1
    assert [int(level) for level in re.findall(r"<h(\d)", page)] == [1, 2, 2]


def test_only_its_own_script_may_run(studies, tmp_path):
    page = write_site_index(tmp_path, studies).read_text()
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="https?:', page)


def test_a_page_that_cannot_be_described_is_listed_with_its_reason(tmp_path):
    page = write_site_index(tmp_path, [], [("studies/a/b/", 'is <not> "whole"')]).read_text()
    assert 'href="./studies/a/b/index.html"' in page
    assert "is &lt;not&gt;" in page
    assert "meshtrial site OUT DIR" in unescape(page)


def test_hostile_studies_are_text(studies, tmp_path):
    bad = '"><script>alert(1)</script>'
    asked = dataclasses.replace(studies[0].study, title=bad, question=bad, name=bad, treatments=(bad,), loads=(bad,))
    hostile = dataclasses.replace(studies[0], study=asked, headlines=((bad, bad), (bad,)), address=f"studies/{bad}/x/")
    page = write_site_index(tmp_path, [hostile], [(bad, bad)]).read_text()
    assert page.count("<script") == 1


def test_all_verdicts_are_json_of_the_schema(studies, tmp_path):
    write_site_index(tmp_path, studies)
    body = json.loads((tmp_path / "verdicts.json").read_text())
    schema = json.loads((SCHEMAS / "site.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    exported = Resource.from_contents(json.loads((SCHEMAS / "export.schema.json").read_text()))
    registry = Registry().with_resource("export.schema.json", exported)
    check = jsonschema.Draft202012Validator(schema, registry=registry)
    assert [error.message for error in check.iter_errors(body)] == []
    assert [len(one["verdicts"]) for one in body["studies"]] == [len(one.verdicts) for one in studies]
    del body["studies"][0]["study"]["alpha"]
    assert not check.is_valid(body)


def test_a_page_of_somebody_else_is_not_replaced(studies, tmp_path):
    refuse_foreign(tmp_path / "new")
    for folder in (paths.CHECKOUT, next((paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json")).parent):
        with refused(UsageError):
            refuse_foreign(folder)
    (tmp_path / "index.html").write_text("mine")
    with refused(UsageError):
        refuse_foreign(tmp_path)
    with refused(UsageError):
        refuse_foreign(tmp_path / "index.html")
    write_site_index(tmp_path, studies)
    refuse_foreign(tmp_path)


ASKED = {
    "": 2,
    "words=PROXY+machine": 1,
    "words=nothing+of+this": 0,
    "backend=kubernetes": 1,
    "treatment=node-proxy": 1,
    "treatment=node-proxy&words=details": 0,
    "study=another": 2,  # no such choice
}


@pytest.mark.linux  # Chromium looks into /proc there
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize(("asked", "shown"), ASKED.items())
def test_the_address_filters_in_a_browser(studies, tmp_path, asked, shown):
    page = write_site_index(tmp_path, studies)
    done = subprocess.run(
        [
            *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"{page.as_uri()}#{asked}"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    items = re.findall(r"<li data-study=[^>]*>", done.stdout)
    assert len(items) == 2
    assert sum("hidden" not in item for item in items) == shown
    assert re.search(r'id="controls" role="search" aria-label="Studies">', done.stdout)
