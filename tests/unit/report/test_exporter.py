import re

from nbformat.v4 import new_markdown_cell, new_output
from unit.report.test_html import code, export, shown

from meshtrial.report import tables


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
