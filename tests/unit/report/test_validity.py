"""Checks of treatments, divided studies, and nodes, as the validity section shows them."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from meshtrial.design.plan import make_plan
from meshtrial.inference import infer
from meshtrial.records import parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.schema import Proof
from meshtrial.report.tables.validity import (
    in_words,
    nodes_of_blocks,
    places_of_blocks,
    proofs,
    proofs_summary,
    sessions_of_blocks,
)


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        ("EOF", "connection closed without an answer"),
        ("EOF occurred in violation of protocol (_ssl.c:2427)", "connection closed during the TLS handshake"),
        ("tlsv13 alert certificate required", "TLS alert: certificate required"),
        ("sslv3 alert certificate unknown", "TLS alert: certificate unknown"),
        ("certificate verify failed (_ssl.c:1000)", "certificate verify failed"),
        (
            "read tcp 10.244.1.3:45610->10.96.64.121:8080: read: connection reset by peer",
            "connection reset by peer",
        ),
        (
            'X-Forwarded-Client-Cert: By=spiffe://a/sa/echo;Hash=fd00;Subject="";URI=spiffe://a/sa/load',
            "spiffe://a/sa/load, in X-Forwarded-Client-Cert",
        ),
        ("HTTP 403", "HTTP 403"),
        ("two\n lines", "two lines"),
        ("x" * 200, "x" * 139 + "…"),
    ],
)
def test_observations_in_words(observed, said):
    assert in_words(observed) == said


def seen(data, treatment: str, observations: list[str]):
    """Return the study with these observations of a proof, one per run."""
    runs = list(data.runs)
    mine = [place for place, run in enumerate(runs) if run.treatment == treatment]
    for place, observed in zip(mine, observations, strict=False):
        proof = Proof("plaintext refused", "before", True, "refused", observed)
        runs[place] = dataclasses.replace(runs[place], proofs=(proof,))
    for place in mine[len(observations) :]:
        runs[place] = dataclasses.replace(runs[place], proofs=())
    return dataclasses.replace(data, runs=tuple(runs))


def test_refusals_that_differ_in_ports_alone_are_one(data):
    ports = [f"read tcp 10.0.0.1:{port}->10.0.0.2:80: read: connection reset by peer" for port in (4001, 4002, 4003)]
    (row,) = [row for row in proofs(seen(data, "node-proxy", ports)).rows if row[0].text == "plaintext refused"][:1]
    assert row[3].text == "connection reset by peer"
    assert row[1].text == "3/3"


def test_the_line_over_the_folded_table_counts_checks(data):
    every = sum(len(run.proofs) for run in data.runs)
    assert proofs_summary(data).endswith(f"{every} of {every} results passed")


COURSE = {"places-differ", "dependent-blocks", "drift", "autocorrelation", "baseline-modes", "modes"}


@pytest.fixture
def divided(make_study, make_record, tmp_path):
    """Two clusters, the second twice as slow in everything; in the first the proxy costs ``first``."""

    def made(first: float = 1.5, second: float = 1.5) -> StudyData:
        plan = make_plan(make_study(blocks=12, options={"parameters": {}}))
        rng = np.random.default_rng(1)
        clusters = ({"context": "east", "kubernetes": "v1.34.4", "nodes": [{}, {}, {}]}, {"context": "west"})
        listed = [
            {"part": parts.described(Part(number, 2), plan), "testbed": testbed}
            for number, testbed in enumerate(clusters, start=1)
        ]
        records = []
        for run in plan.runs:
            west = run.repetition > 6
            cost = {"node-proxy": second if west else first}.get(run.treatment, 1.0)
            value = 0.001 * (2.0 if west else 1.0) * cost * float(np.exp(rng.normal(0, 0.01)))
            records.append(make_record(plan, run, {"latency_p50_s": value}))
        environment = {"parts": listed}
        table, rows = infer(plan, records, environment)
        return StudyData(tmp_path, plan, environment, tuple(records), table, tuple(rows))

    return made


def warned(data: StudyData) -> dict[str, set[str]]:
    return {row.treatment: {warning.code for warning in row.warnings} for row in data.verdicts}


def test_the_tables_say_where_and_how_much(divided):
    data = divided(1.5, 3.0)
    text = f"{places_of_blocks(data).text}\n{sessions_of_blocks(data).text}".replace("\u00a0", " ")
    for said in ("part 1 (east)", "1 to 6", "7 to 12", "v1.34.4"):
        assert said in text
    (line,) = [line for line in text.splitlines() if line.startswith("node-proxy against none")]
    assert "+50" in line or "1.50×" in line
    assert "3.0" in line
    assert line.count("(6 blocks)") == 2


def test_an_effect_that_differs_between_places_warns_and_keeps_its_verdict(divided):
    data = divided(1.5, 3.0)
    (row,) = [row for row in data.verdicts if row.treatment == "node-proxy"]
    assert row.verdict == "slower"
    (said,) = [warning.message for warning in row.warnings if warning.code == "places-differ"]
    assert "in part 1 (east)" in said
    assert "in part 2 (west)" in said
    assert "places-differ" not in warned(data)["none-aa"]
    assert warned(data)["none-aa"] & COURSE == set()


def test_a_place_that_is_slower_in_everything_is_no_warning(divided):
    assert warned(divided())["node-proxy"] & COURSE == set()


def test_the_same_level_in_one_place_is_one(divided):
    """The control: without the places, the machine seems to have two states."""
    data = divided()
    _, rows = infer(data.plan, data.runs)
    codes = {warning.code for row in rows for warning in row.warnings}
    assert codes & {"drift", "autocorrelation", "baseline-modes"}


def test_a_study_of_one_place_has_no_such_tables(data):
    assert places_of_blocks(data).text == sessions_of_blocks(data).text == ""


def test_the_effect_by_node_is_shown_where_blocks_stood_on_several(divided):
    data = divided(1.5, 3.0)
    assert nodes_of_blocks(data).text == ""
    placed = []
    for run in data.runs:
        nodes = ("n1", "n2") if run.repetition % 2 else ("n2", "n1")
        hosts = {"generators": [nodes[0]], "application": [nodes[1]]}
        placed.append(replace(run, extra={"nodes": hosts}))
    shown = nodes_of_blocks(replace(data, runs=tuple(placed))).text.replace("\u00a0", " ")
    assert "generators on n1 application on n2" in shown
    assert "generators on n2 application on n1" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("node-proxy against none")]
    assert line.count("(6 blocks)") == 2
