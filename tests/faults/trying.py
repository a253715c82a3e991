"""Try one cell: inject the fault, check the outcome, and resume the study as if nothing had happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from faults.machine import Memory
from faults.matrix import CELLS, PHASES, Cell, confined
from faults.session import COMMAND, Session, sums, whole


def tried(name: str, folder: Path) -> None:
    """Run the cell of this name in the folder."""
    cell = CELLS[name]
    if cell.prepare is confined and not Memory.possible():
        pytest.skip("no control group can be made here")
    session = Session(folder, cell.command, cell.place, cell.size)
    folder.mkdir(exist_ok=True)
    cell.prepare(session)
    try:
        session.start()
        session.reach(PHASES[cell.phase])
        cell.do(session)
        code = session.ended()
        if code == 77:
            pytest.skip("no file system of the test's own can be mounted here")
        assert_outcome(cell, session, code)
    finally:
        session.kill()


def assert_outcome(cell: Cell, session: Session, code: int) -> None:
    """Check for one line, no lost or partial record, and remaining runs that can be made."""
    text = session.log.read_text(errors="replace")
    assert code in (*cell.codes, *((3,) if cell.command is COMMAND and 0 in cell.codes else ())), text
    for unwanted in ("Traceback", "was never retrieved", "Exception ignored"):
        assert unwanted not in text, text
    if code:
        assert re.search(cell.says, (text.strip().splitlines() or [""])[-1]), text
    if not cell.goes_on:
        return
    if not cell.place.endswith("DATA"):
        before = sums(session.store())
        session.again()
        after = sums(session.store())
        assert {run: after[run] for run in before} == before
    records = whole(session.store())
    if cell.reason:
        first = next(record for record in records if "sidecar" in record.treatment and record.attempt == 1)
        assert any(re.search(cell.reason, reason) for reason in first.reasons), first.reasons
        assert [record.valid for record in records if record.attempt == 2 or "sidecar" not in record.treatment] == [
            True
        ] * 2
    assert list((session.root / "tmp").glob("meshtrial-*")) == []
