"""Conversion of plans, records, verdicts and settings of earlier versions to the present schema and names.

A file is never rewritten. Its seal is checked over its recorded content, and only then is the content converted.
Fields that an earlier version did not have get the value that was in force then.
"""

import re
from collections.abc import Mapping
from typing import Any

from meshtrial.errors import UsageError

PLAN_1, RUN_1 = "meshtrial.plan/1", "meshtrial.run/1"
# Former beginnings of names of responses.
_RESPONSES = {
    "latency_beyond_holds_": "latency_net_",
    "latency_around_": "latency_restart_window_",
    "obeyed_first_": "propagation_first_",
    "obeyed_all_": "propagation_all_",
}
_RESPONSE = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(_RESPONSES)})")
_SETTINGS = {"standing": "deployment_mode", "run_missing": "measure"}
_MODES = {"block": "concurrent", "run": "sequential"}
_CHECK = re.compile("^(?:gate|proof) ")  # how the reason of a failed check began
_NAMING_RESPONSES = ("primary", "margin", "scale")  # settings whose text names responses


def current_responses(text: str) -> str:
    """Return a response's name, or a text with such names, with present names in place of former ones."""
    return _RESPONSE.sub(lambda match: _RESPONSES[match[1]], text)


def current_setting(name: str) -> str:
    """Return the present name of a setting."""
    return _SETTINGS.get(name, name)


def current_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with their present names and values; UsageError if one is given by both names."""
    settings: dict[str, Any] = {}
    for name, value in given.items():
        current = current_setting(name)
        if current == "deployment_mode" and isinstance(value, str):
            value = _MODES.get(value, value)
        elif current in _NAMING_RESPONSES and isinstance(value, str):
            value = current_responses(value)
        if current != name and current in given:
            raise UsageError(f"{name}: is the former name of {current}; leave one of them out")
        settings[current] = value
    return settings


def study_of_1(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the study of a plan of schema 1 as one of schema 2."""
    loads = [_load_of_1(load) for load in study["loads"]]
    # Plans without a mode had concurrent slices on one machine, and one deployment after another on a cluster.
    was_concurrent = study["backend"] == "local" and any(load.get("slices", 1) > 1 for load in loads)
    mode = study.get("standing") or ("block" if was_concurrent else "run")
    margins = _with_current_responses(study["margins"])
    return {
        "correction": "holm",
        "own_failures": "repeated",
        "sessions": 1,
        "session_gap_s": 0.0,
        **{name: value for name, value in study.items() if name != "standing"},
        "loads": loads,
        "primary": [current_responses(name) for name in study["primary"]],
        "margins": margins,
        "scales": _with_current_responses(study.get("scales", dict.fromkeys(margins, "ratio"))),
        "gates": {"foreign_load": None, **study["gates"]},
        "deployment_mode": _MODES[mode],
        "options": _options_of_1(study.get("options", {})),
    }


def run_of_1(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run record of schema 1 as one of schema 2, without the copies of what its plan holds."""
    kept = {name: value for name, value in record.items() if name not in ("load_spec", "options")}
    responses = {name: _with_current_responses(record[name]) for name in ("responses", "bounds")}
    reasons = [_CHECK.sub("check ", reason) for reason in record["reasons"]]
    return {**kept, **responses, "reasons": reasons}


def current_row(row: Any) -> Any:
    """Return a row of verdicts with the present name of its response; anything else is returned unchanged."""
    if isinstance(row, dict) and isinstance(name := row.get("response"), str):
        return row | {"response": current_responses(name)}
    return row


def _with_current_responses(values: Mapping[str, Any]) -> dict[str, Any]:
    return {current_responses(name): value for name, value in values.items()}


def _options_of_1(options: Mapping[str, Any]) -> dict[str, Any]:
    current = dict(options)
    if isinstance(options.get("parameters"), Mapping):
        current["parameters"] = current_settings(options["parameters"])
    if isinstance(instead := options.get("primary_instead"), Mapping):
        current["primary_instead"] = {
            current_responses(name): current_responses(other) for name, other in instead.items()
        }
    return current


# Fields that every load of schema 1 had, by the kind of load that still has them; `ramp` is called `steps` now.
_OF_KIND = {
    "fixed_rate": ("rps", "arrivals", "slices", "slice_warmup_s", "trickle_rps"),
    "closed_loop": ("slices", "slice_warmup_s", "trickle_rps"),
    "capacity_search": ("arrivals", "objective"),
    "ramp": ("rps", "arrivals", "ramp"),
    "restart": ("rps", "arrivals", "restart_at_s", "around_s"),
    "changes": ("rps", "arrivals", "changes", "change_every_s", "change_cycles", "churn_per_min"),
}
# A load of schema 1 was of the first kind whose field it had.
_KIND_BY_FIELD = {
    "capacity_search": "search",
    "changes": "changes",
    "restart": "around_s",
    "ramp": "ramp",
    "fixed_rate": "rps",
}
_OF_SOME_KIND = {name for names in _OF_KIND.values() for name in names}


def _load_of_1(load: Mapping[str, Any]) -> dict[str, Any]:
    kind = next((kind for kind, field in _KIND_BY_FIELD.items() if load.get(field)), "closed_loop")
    kept = {
        name: value
        for name, value in load.items()
        if name != "search" and (name not in _OF_SOME_KIND or name in _OF_KIND[kind])
    }
    if kind == "ramp":
        kept["steps"] = kept.pop("ramp")
    return {"kind": kind, **kept}
