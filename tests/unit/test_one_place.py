"""Of a verdict one fact stands in one place: changed there, it is another wherever it is shown."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import copied
import pytest

from meshtrial import paths

# Analysed from its records, not read: the words of recorded verdicts are those of the version that wrote them.
EVERYWHERE = """
import json, tempfile
from pathlib import Path

import documents
import meshtrial as mt
from meshtrial import paths
from meshtrial.api.study import RecordedStudy
from meshtrial.compare import page, record, text
from meshtrial.compare.request import Named, Request
from meshtrial.compare.request import judge as compare
from meshtrial.errors import UsageError
from meshtrial.inference import infer_recorded
from meshtrial.inference.export import export
from meshtrial.inference.gate import Rules, declared_by, judge, read_rules
from meshtrial.records.dataset import StudyData
from meshtrial.records.store import StudyStore
from meshtrial.report import frames, summary, tables
from meshtrial.report.markup import style_sheet

store = StudyStore.open(next((paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json")).parent)
records = store.records()
table, rows = infer_recorded(store, records)
data = StudyData(store.path, store.plan, store.environment, records, table, tuple(rows))
study, shown = RecordedStudy(data), tables.verdict_table(data)
gate = judge(rows, declared_by(data.plan), Rules(), 0.05)
try:
    read_rules(["no word"])
except UsageError as error:
    allowed = str(error)
with tempfile.TemporaryDirectory() as folder:
    written = {path.name: path.read_text() for path in export(data, Path(folder), ("csv", "json"))}
    # Somebody's own results, of a response by its stored name.
    values = [f"{run},{name},queue_s,{s + run / 1e5}" for name, s in (("a", 0.01), ("b", 0.02)) for run in range(6)]
    (Path(folder) / "runs.csv").write_text("\\n".join(["run,treatment,response,value", *values]))
    compared = compare(Request(Named("a"), table=Path(folder) / "runs.csv"))
of_comparison = judge(compared.rows, compared.primary, Rules(), 0.05)
print(json.dumps({
    "html": shown._repr_html_(),
    "page.css": style_sheet("page.css"),
    "terminal": repr(shown),
    "markdown": summary.markdown("a study", frames.contrasts(data), gate),
    "gate": allowed,
    "verdicts.json": json.dumps([row.to_dict() for row in rows]),
    "frame": json.dumps(study.verdicts().to_dicts()),
    "columns": json.dumps(mt.columns("verdicts").to_dicts()),
    "schema": documents.schema((paths.CHECKOUT / documents.SCHEMA).read_text()),
    "data/README": documents.page((paths.CHECKOUT / documents.PAGE).read_text()),
    "comparison.html": page.verdicts(compared).html,
    "comparison.terminal": text.render(compared),
    "comparison.markdown": summary.markdown("a comparison", text.contrasts(compared), of_comparison),
    "comparison.json": json.dumps(record.to_dict(compared, {})),
    **written,
}))
"""


@dataclass(frozen=True)
class Change:
    """A declaration, what takes its place, and what is then said where."""

    file: str
    before: str
    after: str
    said: tuple[str, ...]
    places: tuple[str, ...]
    gone: str = ""


STORED = ("verdicts.json", "frame", "verdicts.csv", "study.json", "schema")
COMPARED = ("comparison.html", "comparison.terminal", "comparison.markdown")
CHANGES = {
    "the wording of one verdict": Change(
        "vocabulary.py",
        'EQUIVALENT = "equivalent",',
        'EQUIVALENT = "alike",',
        ("alike",),
        ("html", "terminal", "markdown", "gate", *STORED),
        gone="equivalent",
    ),
    "the colour of `equivalent`": Change(
        "report/palette.py", '"same": ("#1f6f54", "#57cfa6")', '"same": ("#123456", "#abcdef")',
        ("--mt-same: #123456", "--mt-same: #abcdef"), ("html",), gone="#1f6f54",
    ),
    "the same on a dark page": Change(
        "report/palette.py", '"same": ("#1f6f54", "#57cfa6")', '"same": ("#1f6f54", "#abcdef")',
        ("--mt-same: #abcdef",), ("html", "page.css"), gone="#57cfa6",
    ),
    "a new column of the verdict table": Change(
        "report/tables/verdict_columns.py",
        '    VerdictColumn("gate", ',
        '    VerdictColumn("seen", lambda line: f"{line.row.n_blocks}-fold"),\n    VerdictColumn("gate", ',
        ("seen", "-fold"),
        ("html", "terminal", "markdown", *COMPARED),
    ),
    "a new response": Change(
        "design/responses.py",
        "def _levels() -> list[Response]:\n    return [\n",
        "def _levels() -> list[Response]:\n    return [\n"
        "        Response('queue_s', 'wait in the queue', 'latency', 'ms', 1e3),\n",
        ("wait in the queue", "slower"),
        (*COMPARED, "comparison.json"),
        gone="higher",
    ),
    "a new column of the stored verdicts": Change(
        "records/schema.py",
        "    after_the_fact: Annotated[",
        '    looked: Annotated[int, "how often somebody looked"] = 3\n    after_the_fact: Annotated[',
        ("looked",),
        (*STORED, "columns", "data/README"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_changed_in_one_place(name: str, tmp_path: Path):
    change = CHANGES[name]
    file = copied.checkout(tmp_path) / "lib" / "meshtrial" / change.file
    text = file.read_text()
    assert text.count(change.before) == 1
    file.write_text(text.replace(change.before, change.after))
    everywhere = json.loads(copied.python(tmp_path, EVERYWHERE))
    for place in change.places:
        assert [said for said in change.said if said not in everywhere[place]] == [], place
        assert not change.gone or not re.search(rf"(?<![\w ]){change.gone}(?!\w)", everywhere[place]), place


def test_the_documents_are_those_that_the_code_makes():
    import documents

    for path, made in documents.MADE.items():
        text = (paths.CHECKOUT / path).read_text()
        assert made(text) == text, f"{path}: {documents.__doc__}"
