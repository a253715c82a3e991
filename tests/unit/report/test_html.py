import base64
import hashlib
import re
from html import unescape as html_text
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from papermill.exceptions import PapermillExecutionError
from papermill.execute import raise_for_execution_errors
from refused import refused
from unit.report.synth import changed

from meshtrial.errors import RecordError
from meshtrial.report import figures, report_seal, tables
from meshtrial.report.exporter import PAPERMILL_TAG, UNFINISHED, add_unfinished_banner, notebook_to_html

VOID = {"meta", "link", "br", "img", "hr", "input", "col", "wbr", "use", "path"}


class Page(HTMLParser):
    """Collect elements and ids of a page, and whether its elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


def shown(thing) -> object:
    forms = {"text/html": thing._repr_html_(), "text/plain": repr(thing)}
    return new_output("execute_result", data=thing._repr_mimebundle_() | forms, execution_count=1)


def code(source: str, *outputs, tags=()) -> object:
    cell = new_code_cell(source)
    cell.outputs = list(outputs)
    cell.metadata["tags"] = list(tags)
    return cell


def made(data, source: str) -> object:
    """Return a cell that shows the result of its source for the study."""
    return code(source, shown(eval(source, {"data": data, "figures": figures, "tables": tables})))


def export(tmp_path: Path, cells, **metadata) -> str:
    notebook = new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, tmp_path / "n.ipynb")
    return notebook_to_html(tmp_path / "n.ipynb", tmp_path / "n.html").read_text()


@pytest.fixture(scope="module")
def page(data, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("page")
    stdout = new_output("stream", name="stdout", text="\n".join(f"[{i}/40] block" for i in range(40)))
    stderr = new_output("stream", name="stderr", text="SomeWarning: chatter")
    cells = [
        new_markdown_cell("# A *study*\n\nWith a [link](https://example.org/)."),
        new_markdown_cell("## Parameters"),
        code("seed = 1", tags=["parameters"]),
        code("seed = 7", tags=["injected-parameters"]),
        new_markdown_cell("## Run"),
        code("data = run()", stdout, stderr, tags=["progress"]),
        new_markdown_cell("## Verdict"),
        *(
            made(data, f"{name}(data)")
            for name in ("tables.verdict_sentence", "tables.verdict_table", "figures.forest")
        ),
        new_markdown_cell("## Latency\n\n### Every run"),
        made(data, "figures.runs_by_block(data, 'p50')"),
        *(made(data, f"figures.{name}(data)") for name in ("latency_ccdf", "added_latency", "resources", "drift")),
        *(
            made(data, f"tables.{name}(data)")
            for name in ("exploratory_table", "validity", "design", "method_and_limits")
        ),
        new_markdown_cell("## Provenance"),
        made(data, "tables.provenance(data)"),
    ]
    notebook = new_notebook(cells=cells)
    nbformat.write(notebook, folder / "study.ipynb")
    path = notebook_to_html(folder / "study.ipynb", folder / "study.html", index="index.html")
    return path.read_text()


def test_the_page_fetches_nothing(page):
    parsed = Page(page)
    assert not parsed.all("iframe")
    for tag, attrs in parsed.elements:
        for name in ("src", "srcset", "data", "poster", "xlink:href"):
            value = attrs.get(name) or ""
            assert value.startswith(("data:", "#")) or not value, (tag, name, value)
        if tag == "link":
            assert (attrs.get("href") or "").startswith("data:")
    styles = "".join(re.findall(r"<style[^>]*>(.*?)</style>", page, flags=re.DOTALL))
    assert "@import" not in styles
    assert "url(" not in styles
    assert "http" not in styles
    assert "https://example.org/" in page  # a link in prose fetches nothing


def test_a_policy_in_the_page_keeps_the_browser_to_that_and_to_its_own_script(page):
    policy = next(m["content"] for m in Page(page).all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    (source,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert re.findall(r"script-src ([^;]*);", policy) == [f"'sha256-{digest}'"]
    for reach in ("fetch(", "XMLHttpRequest", "import(", "http", "eval(", "innerHTML"):
        assert reach not in source


def test_elements_are_closed_in_order_ids_are_unique_and_every_internal_link_arrives(page):
    parsed = Page(page)
    assert (parsed.wrong, parsed.open) == ([], [])
    ids = [attrs["id"] for _, attrs in parsed.elements if attrs.get("id")]
    assert len(ids) == len(set(ids))
    for attrs in parsed.all("a"):
        target = attrs.get("href") or ""
        assert not target.startswith("#") or target[1:] in ids


def test_the_verdict_comes_first_unless_something_failed(page, tmp_path):
    assert page.index('id="Verdict"') < page.index('id="Parameters"')
    error = new_output("error", ename="UsageError", evalue="no", traceback=["no"])
    first, last = new_markdown_cell("# T"), new_markdown_cell("## Verdict")
    growth, verdict = new_markdown_cell("## Growth"), code("verdict()", tags=["verdict"])
    text = export(tmp_path, [first, growth, new_markdown_cell("## Verdict"), verdict])
    assert text.index('id="Verdict"') < text.index('id="Growth"')
    text = export(tmp_path, [first, new_markdown_cell("## Parameters"), code("a", error, tags=["parameters"]), last])
    assert text.index('id="Parameters"') < text.index('id="Verdict"')


def test_hostile_names_stay_text_on_the_page_too(data, tmp_path):
    bad = '"><script>alert(1)</script><img src=https://x/ onerror=alert(1)>'
    hostile = changed(data, lambda row: row.treatment == "node-proxy", treatment=bad)
    outputs = [shown(figures.forest(hostile)), shown(tables.verdict_table(hostile))]
    text = export(tmp_path, [new_markdown_cell("# T"), *(code("x", output) for output in outputs)])
    parsed = Page(text)
    assert text.count("<script") == 1  # the page's own
    assert "<script>alert" not in text
    assert not parsed.all("img")
    assert parsed.wrong == []


def test_the_folder_of_a_recorded_study_is_named_without_the_way_to_it(tmp_path):
    given = 'study_dir = "/home/someone/data/studies/ambient_vs_no_mesh/20261121T0-abc"\nmeasure = False'
    text = export(tmp_path, [new_markdown_cell("# T"), code(given, tags=["injected-parameters"])])
    said = html_text(re.sub(r"<[^>]+>", "", text))
    assert 'study_dir = "ambient_vs_no_mesh/20261121T0-abc"' in said
    assert "someone" not in text


def test_no_folder_of_this_machine_is_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", "/home/someone/my studies [1]")
    given = "cluster_file = '/home/someone/clusters/mine.yaml'\nversions = 'a=/home/someone/bin/envoy,b=x.yaml'"
    printed = "study /home/someone/my studies [1]/x/20261121T0-abc, plan 1\n/home/someone/clusters/mine.yaml: read\n"
    output = new_output("stream", name="stdout", text=printed)
    cells = [code(given, tags=["injected-parameters"]), code("run()", output)]
    text = export(tmp_path, [new_markdown_cell("# T"), *cells])
    said = html_text(re.sub(r"<[^>]+>", "", text))
    assert "someone" not in text
    assert "cluster_file = 'mine.yaml'\nversions = 'a=envoy,b=x.yaml'" in said
    assert "study x/20261121T0-abc, plan 1" in said
    assert "mine.yaml: read" in said


def test_the_seal_is_read_back(page, data, tmp_path):
    path = tmp_path / "r.html"
    path.write_text(page)
    assert report_seal(path) == {
        "plan": data.plan.sha256,
        "verdicts": tables.verdicts_sha256(data),
        "records": tables.recorded_at(data),
    }
    path.write_text("<p>something else</p>")
    assert report_seal(path) == {}
    with refused(RecordError, names=[tmp_path / "missing.html"]):
        report_seal(tmp_path / "missing.html")


def test_an_error_stands_first_and_is_escaped(tmp_path):
    error = new_output(
        "error",
        ename="UsageError",
        evalue="rps = '<b>': must be 0 or more",
        traceback=["\x1b[31mTraceback\x1b[0m", "<script>alert(1)</script>"],
    )
    marked = code("x", tags=["papermill-error-cell-tag"])
    text = export(tmp_path, [new_markdown_cell("# Study"), marked, code("boom()", error), code("again()", error)])
    banner = text.index("This report is incomplete.")
    assert banner < text.index("<h1")
    for said in ("2 cells failed", 'href="#error-1"', 'id="error-1"', 'id="error-2"'):
        assert said in text
    assert text.count("rps = &#39;&lt;b&gt;&#39;") == 3  # in the banner and at both cells
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert Page(text).wrong == []


def test_titles_from_metadata_heading_or_file_name(tmp_path):
    assert "<title>Named</title>" in export(tmp_path, [new_markdown_cell("# Other")], title="Named")
    assert "<title>n</title>" in export(tmp_path, [new_markdown_cell("no heading")])
    assert "<title>&lt;b&gt;</title>" in export(tmp_path, [], title="<b>")


def test_an_unreadable_notebook_names_the_file(tmp_path):
    (tmp_path / "bad.ipynb").write_text("{")
    with refused(RecordError, names=[tmp_path / "bad.ipynb"]):
        notebook_to_html(tmp_path / "bad.ipynb", tmp_path / "bad.html")
    assert not (tmp_path / "bad.html").exists()


def folds(text: str) -> list[str]:
    return re.findall(r'<details class="mt-fold">.*?</details>', text, flags=re.DOTALL)


def test_of_the_opening_the_question_stays_and_the_rest_is_folded(tmp_path):
    opening = "# T\n\n**Question.** What?\n\n**For whom.** For you.\n\n**How long.** Long.\n\nMore."
    text = export(tmp_path, [new_markdown_cell(opening), new_markdown_cell("## Verdict"), new_markdown_cell("## Next")])
    (fold,) = folds(text)
    assert '<span class="mt-holds">for whom, how long</span>' in fold
    assert [part for part in ("About this study", "For you.", "More.") if part not in fold] == []
    assert text.index("What?") < text.index('id="Verdict"') < text.index("About this study") < text.index('id="Next"')


def test_what_is_said_of_parameters_before_they_are_set_is_folded(tmp_path):
    profiles = "### What the profiles set\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    said = f"## Parameters\n\nThe first ten.\n\n{profiles}\n\n### What to expect\n\nMuch."
    cells = [new_markdown_cell("# T"), new_markdown_cell(said), code("seed = 1", tags=["parameters"])]
    text = export(tmp_path, [*cells, new_markdown_cell("## Verdict")])
    fold = folds(text)[0]
    assert '<span class="mt-holds">what the profiles set, what to expect</span>' in fold
    assert [part for part in ("The first ten.", "<td>1</td>", "Much.") if part not in fold] == []
    assert "<h3" not in text


def test_code_stands_together_at_the_end_or_where_a_cell_failed(tmp_path):
    cells = [
        new_markdown_cell("# T"),
        new_markdown_cell("## Run"),
        code("made_here()"),
        code("left_out()", tags=["remove_input"]),
    ]
    text = export(tmp_path, [*cells, new_markdown_cell("## Next")])
    assert "made_here" not in text[: text.index('id="Code"')]
    assert "left_out" not in text
    error = new_output("error", ename="UsageError", evalue="no", traceback=["no"])
    text = export(tmp_path, [*cells, code("boom()", error)])
    assert 'id="Code"' not in text
    assert text.index("made_here") < text.index("boom")


def test_our_own_outputs_are_the_same_to_the_byte_and_others_pictures_get_words(data, tmp_path):
    ours = tables.verdict_table(data)
    other = new_output("display_data", data={"text/html": '<img src="data:image/png;base64,iVBORw0KGgo="> 3 < 4'})
    cells = [code("a", other), code("b", shown(ours)), code("c", shown(ours))]
    text = export(tmp_path, [new_markdown_cell("# T"), *cells])
    assert text.count(f'<div class="mt">{ours.html}</div>') == 2
    assert 'alt="No description' in text
    assert "3 &lt; 4" in text


def test_of_an_output_a_page_takes_what_it_can_hold(tmp_path):
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "1 < 2"}
    picture = {"image/png": "iVBORw0KGgo=", "text/plain": "x"}
    outputs = [new_output("display_data", data=data) for data in (widget, picture)]
    text = export(tmp_path, [code("a", *outputs)])
    assert "1 &lt; 2" in text
    assert "data:image/png;base64,iVBORw0KGgo=" in text


WHAT = "check <b>mTLS</b>: ```\n# no heading"
KEPT = "12 of 40 runs are recorded, 3 of 10 blocks, in data/studies/x"
COMMAND = "meshtrial run x -p study_dir=data/studies/x"


@pytest.fixture
def failed_notebook(tmp_path):
    """Return a notebook as papermill leaves it when a cell fails."""
    v4 = nbformat.v4
    error = v4.new_output("error", ename="TestbedError", evalue=WHAT, traceback=[])
    cells = [v4.new_markdown_cell("# A study"), v4.new_code_cell("run()", execution_count=1, outputs=[error])]
    path = tmp_path / "x.ipynb"
    with pytest.raises(PapermillExecutionError):
        raise_for_execution_errors(v4.new_notebook(cells=cells, metadata={"papermill": {}}), str(path))
    assert PAPERMILL_TAG in nbformat.read(path, 4).cells[0].metadata["tags"]
    return path


def test_the_notebook_says_what_failed_what_was_kept_and_how_to_go_on(failed_notebook):
    add_unfinished_banner(failed_notebook, WHAT, KEPT, COMMAND)
    notebook = nbformat.read(failed_notebook, 4)
    nbformat.validate(notebook)
    first, second, third, fourth = notebook.cells
    assert first.metadata["tags"] == [UNFINISHED]
    assert first.source.splitlines()[2:4] == ["    check <b>mTLS</b>: ```", "    # no heading"]
    assert f"\n{KEPT}. Resume it with:\n" in first.source
    assert first.source.endswith(f"\n    {COMMAND}")
    assert second.source == "# A study"
    assert PAPERMILL_TAG in third.metadata["tags"]  # marks the cell that failed_notebook
    assert fourth.source == "run()"


def test_said_twice_it_stands_there_once(failed_notebook):
    add_unfinished_banner(failed_notebook, "first", KEPT, COMMAND)
    add_unfinished_banner(failed_notebook, "second", KEPT, COMMAND)
    tagged = [
        cell.source for cell in nbformat.read(failed_notebook, 4).cells if UNFINISHED in cell.metadata.get("tags", ())
    ]
    assert len(tagged) == 1
    assert "second" in tagged[0]


def test_on_the_page_it_is_the_banner_with_a_way_to_the_cell(failed_notebook, tmp_path):
    add_unfinished_banner(failed_notebook, WHAT, KEPT, COMMAND)
    text = notebook_to_html(failed_notebook, tmp_path / "x.html").read_text()
    banner = text[text.index('<section class="banner"') : text.index("<h1")]
    assert "This study is unfinished." in banner
    assert "check &lt;b&gt;mTLS&lt;/b&gt;" in banner
    assert KEPT in banner
    assert COMMAND in banner
    assert 'href="#error-1"' in banner
    assert 'id="error-1"' in text
    assert text.count(KEPT) == 1


def test_one_that_was_interrupted_without_an_error_has_the_banner_too(tmp_path):
    path = tmp_path / "x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A study")]), path)
    add_unfinished_banner(path, "interrupted", KEPT, COMMAND)
    text = notebook_to_html(path, tmp_path / "x.html").read_text()
    assert text.index('<section class="banner" role="alert">') < text.index("<h1")
    assert "#error-1" not in text
