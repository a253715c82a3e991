"""Output for pipelines' trackers: the effects of primary contrasts, in the published formats."""

import json
from dataclasses import replace

import jsonschema
import pytest
from unit.report.synth import Shape, study_data

from meshtrial.report import trackers
from meshtrial.report.frames import Contrasts, contrasts

# https://bencher.dev/bmf.json
BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "additionalProperties": False,
                    "required": ["value"],
                }
            },
        }
    },
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Contrasts:
    return contrasts(study_data(tmp_path_factory.mktemp("study"), Shape()))


def test_bencher_gets_every_primary_effect_on_both_scales_with_its_interval(shown):
    given = json.loads(trackers.bencher("study", shown))
    jsonschema.validate(given, BMF)
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    measures = given[f"study: node-proxy against none at {row.load}"]
    assert measures["latency_p50_s ratio"] == {
        "value": row.ratio,
        "lower_value": row.ci_low,
        "upper_value": row.ci_high,
    }
    assert measures["latency_p50_s difference"]["value"] == row.difference
    assert any("none-aa" in name for name in given)
    # Bencher takes names of measures of at most 64 characters.
    assert all(len(name) <= 64 for one in given.values() for name in one)


def test_an_open_interval_leaves_its_end_out_and_a_missing_effect_its_measure(shown):
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    odd = replace(shown, rows=(replace(row, ci_high=float("inf"), difference=None),))
    (measures,) = json.loads(trackers.bencher("study", odd)).values()
    assert measures == {"latency_p50_s ratio": {"value": row.ratio, "lower_value": row.ci_low}}
    (entry,) = json.loads(trackers.benchmark_json("study", odd))
    assert "range" not in entry


def test_github_action_benchmark_gets_what_it_reads(shown):
    """Its README requires name, unit and a number, and allows range and extra as text."""
    given = json.loads(trackers.benchmark_json("study", shown))
    kinds = {"name": str, "unit": str, "value": float, "range": str, "extra": str}
    assert given
    for entry in given:
        assert {"name", "unit", "value"} <= set(entry) <= set(kinds)
        assert all(isinstance(value, kinds[name]) for name, value in entry.items())
    names = [entry["name"] for entry in given]
    assert len(set(names)) == len(names)
    row = next(r for r in shown.rows if r.response == "latency_p50_s" and r.treatment == "node-proxy")
    entry = next(entry for entry in given if row.treatment in entry["name"] and row.label in entry["name"])
    assert (entry["value"], entry["unit"]) == (row.ratio, "ratio")
    assert row.sentence in entry["extra"]


def test_more_is_better_is_not_given_to_a_tool_for_which_less_is(shown):
    row = next(r for r in shown.rows if r.response == "latency_p50_s")
    search = replace(shown, rows=(replace(row, response="capacity_rps"),))
    assert json.loads(trackers.benchmark_json("study", search)) == []
    assert json.loads(trackers.bencher("study", search))
