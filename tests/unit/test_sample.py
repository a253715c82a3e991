"""The recorded study that comes with the checkout: intact, and its verdicts come out again the same."""

from __future__ import annotations

import io
import shutil

import pytest

from meshtrial import cli, paths
from meshtrial.errors import RecordError
from meshtrial.inference import read_study
from meshtrial.records.store import StudyStore

SAMPLES = sorted((paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json"))


def test_there_is_one():
    assert len(SAMPLES) == 1


@pytest.mark.parametrize("plan", SAMPLES, ids=lambda p: p.parent.name)
def test_it_is_intact_and_analysed_as_it_was(plan):
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["verify", str(plan.parent)], out, err) == 0, err.getvalue()
    assert "intact" in out.getvalue()


@pytest.mark.parametrize("plan", SAMPLES, ids=lambda p: p.parent.name)
def test_it_finds_the_node_proxy_slower_and_the_twin_not_different(plan):
    rows = [row for row in read_study(StudyStore.open(plan.parent)).verdicts if row.response == "latency_p50_s"]
    assert {row.treatment: row.verdict in ("slower", "faster") for row in rows} == {
        "none-aa": False,
        "node-proxy": True,
    }


def test_verdicts_of_another_version_are_refused_with_what_to_do(tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(SAMPLES[0].parent, folder)
    path = folder / "verdicts.json"
    path.write_text(path.read_text().replace('"p_adjusted"', '"p_holm"'))
    with pytest.raises(RecordError, match=r"another version.*meshtrial report"):
        read_study(StudyStore.open(folder))
