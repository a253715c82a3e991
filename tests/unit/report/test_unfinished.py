"""A study that broke off says so before anything else: in its notebook and on its page."""

import nbformat
import pytest
from papermill.exceptions import PapermillExecutionError
from papermill.execute import raise_for_execution_errors

from meshtrial.report.exporter import NOT_WHOLE, PAPERMILL_TAG
from meshtrial.report.html import add_unfinished_banner, notebook_to_html

WHAT = "proof <b>mTLS</b>: ```\n# no heading"
KEPT = "12 of 40 runs are recorded, 3 of 10 blocks, in data/studies/x"
COMMAND = "meshtrial run x -p study_dir=data/studies/x"


@pytest.fixture
def failed(tmp_path):
    """A notebook as papermill leaves it when a cell fails."""
    v4 = nbformat.v4
    error = v4.new_output("error", ename="TestbedError", evalue=WHAT, traceback=[])
    cells = [v4.new_markdown_cell("# A study"), v4.new_code_cell("run()", execution_count=1, outputs=[error])]
    path = tmp_path / "x.ipynb"
    with pytest.raises(PapermillExecutionError):
        raise_for_execution_errors(v4.new_notebook(cells=cells, metadata={"papermill": {}}), str(path))
    assert PAPERMILL_TAG in nbformat.read(path, 4).cells[0].metadata["tags"]
    return path


def test_the_notebook_says_what_failed_what_was_kept_and_how_to_go_on(failed):
    add_unfinished_banner(failed, WHAT, KEPT, COMMAND)
    notebook = nbformat.read(failed, 4)
    nbformat.validate(notebook)
    first, second, third, fourth = notebook.cells
    assert first.metadata["tags"] == [NOT_WHOLE]
    assert first.source.splitlines()[2:4] == ["    proof <b>mTLS</b>: ```", "    # no heading"]
    assert f"\n{KEPT}. To go on:\n" in first.source
    assert first.source.endswith(f"\n    {COMMAND}")
    assert second.source == "# A study"
    assert PAPERMILL_TAG in third.metadata["tags"]  # marks the cell that failed
    assert fourth.source == "run()"


def test_said_twice_it_stands_there_once(failed):
    add_unfinished_banner(failed, "first", KEPT, COMMAND)
    add_unfinished_banner(failed, "second", KEPT, COMMAND)
    tagged = [cell.source for cell in nbformat.read(failed, 4).cells if NOT_WHOLE in cell.metadata.get("tags", ())]
    assert len(tagged) == 1
    assert "second" in tagged[0]


def test_on_the_page_it_is_the_banner_with_a_way_to_the_cell(failed, tmp_path):
    add_unfinished_banner(failed, WHAT, KEPT, COMMAND)
    text = notebook_to_html(failed, tmp_path / "x.html").read_text()
    banner = text[text.index('<section class="banner"') : text.index("<h1")]
    assert "This study did not come to its end." in banner
    assert "proof &lt;b&gt;mTLS&lt;/b&gt;" in banner
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
