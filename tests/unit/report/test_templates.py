"""Pages come from templates: no HTML is joined from strings, and templates escape their values."""

import ast
import re

import pytest
from jinja2.exceptions import UndefinedError
from markupsafe import Markup

from meshtrial import paths
from meshtrial.report import figures
from meshtrial.report.markup import ON_PAGE, Cell, Column, Table, bullets, fold, paragraph, part, render

ROOMS = ("report", "compare", "inference", "commands")
# It reads the seal of a written page.
TAKE_APART = ("pages.py",)
TAG = re.compile(
    r"</?(a|b|br|code|data|details|div|figure|h[1-6]|img|li|nav|p|section|small|span|strong|table|t[dhr]|ul)\b"
)
HOSTILE = '"><script>alert(1)</script>'


def texts(tree: ast.AST) -> list[str]:
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    ]


def test_no_html_is_put_together_from_strings():
    files = [file for room in ROOMS for file in (paths.CHECKOUT / "lib" / "meshtrial" / room).rglob("*.py")]
    assert len(files) > 40
    found = [
        f"{file.name}: {text[:60]}"
        for file in files
        if file.name not in TAKE_APART
        for text in texts(ast.parse(file.read_text()))
        if TAG.search(text)
    ]
    assert found == []


def test_what_is_not_markup_is_text():
    table = Table(
        HOSTILE, [Column(HOSTILE, str)], [[Cell(HOSTILE, HOSTILE, note=HOSTILE)]], HOSTILE, [HOSTILE], [HOSTILE]
    )
    pieces = [table.fragment().html, bullets([HOSTILE]).html, part("link", HOSTILE, HOSTILE), part("banner", [HOSTILE])]
    pieces.append(Markup(paragraph(HOSTILE)._repr_html_()))
    for piece in pieces:
        assert "<script" not in piece
        assert "&lt;script" in piece


def test_what_is_nested_takes_the_form_of_what_it_is_in(data):
    picture = figures.answer(data)
    shown = fold("title", "what it holds", paragraph(HOSTILE), picture)
    assert shown.text == f"title\n{HOSTILE}\n\n{picture.text}"
    assert picture.alt in shown.text
    on_page, in_notebook = shown._repr_mimebundle_()[ON_PAGE], shown._repr_html_()
    assert (on_page.count("<svg"), on_page.count("<img"), on_page.count("<style")) == (1, 0, 0)
    assert (in_notebook.count("<svg"), in_notebook.count("<img"), in_notebook.count("<style")) == (0, 1, 1)


def test_a_template_that_lacks_a_value_says_so():
    with pytest.raises(UndefinedError):
        render("index.html.j2", reports=[])
