"""The check of plain English: the texts that it reads, and exceptions that can only decrease."""

import json
import re
from pathlib import Path

import prose
import pytest

RULES = prose.Rules(6, {"anew": (re.compile(r"\banew\b"), '"again"')})
LONG = "This sentence has more than the six words."
SHORT = "This one is short."


def found(folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return [(finding.line, finding.rule) for finding in prose.check([name], folder, RULES)]


def test_pages_are_read_without_their_code(tmp_path: Path):
    code = "```bash\nstart it anew, and anew, and anew, and anew\n```"
    page = f"# Title\n\n{SHORT} {SHORT}\n\n{code}\n\n- {LONG}\n\n| anew |\n|---|\n"
    assert found(tmp_path, "page.md", page) == [(9, prose.TOO_LONG), (11, "anew")]


def test_only_the_markdown_of_a_notebook_is_read(tmp_path: Path):
    cells = [{"cell_type": kind, "source": [LONG]} for kind in ("code", "markdown")]
    assert found(tmp_path, "study.ipynb", json.dumps({"cells": cells})) == [(1, prose.TOO_LONG)]


MODULE = f'''"""Run it anew."""

# {LONG[:20]}
# {LONG[20:]}
raise ValueError(f"{{1}} is to be started anew")
PATTERN = r"(?:anew|anew) anew anew anew"
KEY = "anew"
'''


def test_docstrings_comments_and_messages_of_a_module_are_read(tmp_path: Path):
    assert sorted(found(tmp_path, "module.py", MODULE)) == [(1, "anew"), (3, prose.TOO_LONG), (5, "anew")]


def test_strings_of_a_test_are_its_data(tmp_path: Path):
    assert sorted(found(tmp_path, "tests/test_it.py", MODULE)) == [(1, "anew"), (3, prose.TOO_LONG)]


def test_a_template_is_read_without_its_tags(tmp_path: Path):
    tag = "<p class='anew a b c'>{{ anew }} is started {% if anew %}once more, anew{% endif %}</p>"
    template = f"{{# anew anew anew anew anew #}}\n{tag}\n"
    assert found(tmp_path, "page.j2", template) == [(2, "anew")]


@pytest.mark.parametrize(
    ("allowed", "beyond", "kept"),
    [
        ({}, 2, {}),
        ({"a.py": {"anew": 1}}, 2, {"a.py": {"anew": 1}}),
        ({"a.py": {"anew": 2}}, 0, {"a.py": {"anew": 2}}),
        ({"a.py": {"anew": 5}, "gone.py": {"anew": 1}}, 0, {"a.py": {"anew": 2}}),
    ],
)
def test_exceptions_become_fewer_and_never_more(allowed, beyond, kept):
    findings = [prose.Finding("a.py", line, "anew", "") for line in (1, 2)]
    assert len(prose.excess(findings, allowed)) == beyond
    assert prose.lowered(findings, allowed) == kept
