"""Which versions the records prove."""

from dataclasses import replace

import pytest

from meshtrial.design.plan import Plan, make_plan
from meshtrial.inference import infer
from meshtrial.inference.diagnosis import same_versions, varying_versions
from meshtrial.records.schema import RunRecord


@pytest.fixture
def record(small_plan: Plan, make_record) -> RunRecord:
    return make_record(small_plan, small_plan.runs[0], {})


def runs(record: RunRecord, **versions: dict[str, str]) -> list[RunRecord]:
    """Two runs of each treatment, with their recorded versions."""
    return [replace(record, treatment=name, versions=told) for name, told in versions.items() for _ in range(2)]


IMAGE = {"image istio-proxy": "proxyv2:1 (sha256:ab)"}


def test_two_versions_on_purpose_are_no_warning(record: RunRecord):
    other = {"image istio-proxy": "proxyv2:2 (sha256:cd)"}
    found = runs(record, **{"istio@a": IMAGE, "istio@b": other})
    assert varying_versions(found) == ()
    assert same_versions(found) == ()
    (line,) = varying_versions([*found, replace(found[0], versions=other)])
    assert line.code == "varying-factor"
    assert line.message.startswith("version of image istio-proxy varies inside istio@a")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        # A mesh's version is only declared, so it is no evidence.
        (IMAGE | {"mesh istio@a": "1.30"}, IMAGE | {"mesh istio@b": "1.31"}, True),
        (IMAGE | {"values istiod": "sha256:1"}, IMAGE | {"values istiod": "sha256:2"}, False),
        (IMAGE | {"chart istiod": "1.30 (sha256:1)"}, IMAGE, False),
        ({"version a": "configuration (sha256 1)"}, {"version b": "configuration (sha256 1)"}, True),
        ({"version a": "configuration (sha256 1)"}, {"version b": "configuration (sha256 2)"}, False),
    ],
)
def test_two_versions_that_ran_the_same_are_told(record: RunRecord, one: dict, other: dict, same: bool):
    found = same_versions(runs(record, **{"istio@a": one, "istio@b": other, "istio@b+mtls": other, "istio-aa@b": one}))
    assert [(warning.code, warning.message.split(" ran ")[0]) for warning in found] == [
        ("same-version", "istio@a and istio@b")
    ] * same


def test_it_stands_at_every_verdict(make_study, make_record):
    treatments = ("none", "none-aa", "sidecar@a", "sidecar@b")
    plan = make_plan(make_study(treatments=treatments))
    told = {"sidecar@a": {"version a": "x"}, "sidecar@b": {"version b": "x"}}
    records = [
        replace(make_record(plan, run, {"latency_p50_s": 1 + run.sequence / 1e3}), versions=told.get(run.treatment, {}))
        for run in plan.runs
    ]
    _, rows = infer(plan, records)
    assert rows
    for row in rows:
        (said,) = [warning.message for warning in row.warnings if warning.code == "same-version"]
        assert said.startswith("sidecar@a and sidecar@b")
