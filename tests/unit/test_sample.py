"""The recorded study that comes with the checkout: intact, and its verdicts come out again the same."""

from __future__ import annotations

import io

import pytest

from meshtrial import cli, paths
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
