"""The studies' notebooks: what the profiles set, an example of a result, and the cell of parameters."""

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from meshtrial.design.load import CapacitySearch
from meshtrial.design.responses import REGISTRY
from meshtrial.design.studies import STUDIES
from meshtrial.records.schema import VerdictRow
from meshtrial.vocabulary import BETWEEN
from pages.parameters import built
from pages.samples import CHANGED, DELAYED, FEATURES, MESHES, QUOTED, effect_of, recorded
from pages.tables import under

MOST_LISTED = 9  # treatments in the table of a notebook's profiles


@dataclass(frozen=True)
class Example:
    """The rows of a recorded study that its notebook shows."""

    sample: str
    responses: tuple[str, ...] = QUOTED[:1]
    loads: tuple[str, ...] = ()  # all of them where none is named
    every_contrast: bool = False  # those too whose baseline is another treatment than the study's


# What a study's notebook shows as a result: a record of that study, if the checkout has one.
EXAMPLES = {
    "ambient_vs_no_mesh": Example("ambient_vs_no_mesh-20261121T211720Z-77c58730", loads=("300rps-4c",)),
    "calibration": Example(DELAYED),
    "decomposition": Example("decomposition-20261128T060908Z-b5e99d19", QUOTED, every_contrast=True),
    "feature_impact": Example(FEATURES["Istio"], QUOTED),
    "mesh_comparison": Example(MESHES, loads=("500rps-10c",)),
    "propagation": Example(
        CHANGED,
        ("propagation_all_endpoints_s", "propagation_all_deny_s", "propagation_all_weight_s"),
        ("400rps-8c-close",),
    ),
    "rollout": Example("rollout-20261128T061528Z-0aa00c4e", ("failed_requests", "longest_gap_s"), every_contrast=True),
    "scale_out": Example("scale_out-20261123T090922Z-9ce4cae7", ("latency_net_p50_s",)),
}


def _set_by(study: str) -> dict[str, list[str]]:
    """What each profile makes of the parameters that are left out, by what it is."""
    from meshtrial.design.settings import PROFILES

    lines = _lines([built(study, profile=profile) for profile in PROFILES])
    if "context" in STUDIES[study].SETTINGS.settings:
        cluster = _lines([built(study, profile=profile, backend="kubernetes") for profile in PROFILES])
        lines |= {f"{name} on a cluster": values for name, values in cluster.items() if values != lines[name]}
    return lines


def _lines(studies: Iterable[Any]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {"blocks": [], "loads": [], "measured seconds of a run": [], "warm-up seconds": []}
    lines |= {"slices": [], "treatments": [], "primary responses": []}
    for made in studies:
        loads = [load for load in made.loads if not isinstance(load, CapacitySearch)] or list(made.loads)
        lines["blocks"].append(str(made.blocks))
        lines["loads"].append(", ".join(dict.fromkeys(load.label for load in made.loads)))
        lines["measured seconds of a run"].append(f"{loads[0].measured_s:g}")
        lines["warm-up seconds"].append(f"{loads[0].warmup_s:g}")
        lines["slices"].append(str(loads[0].parts))
        names = [f"`{one.name}`" for one in made.treatments]
        more = [f"and {len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED + 1 else []
        lines["treatments"].append(", ".join([*names[: MOST_LISTED if more else None], *more]))
        lines["primary responses"].append(", ".join(f"`{name}`" for name in made.primary))
    return lines


def notebook(study: str) -> Callable[[str], str]:
    """A study's notebook, with what its profiles set and an example of a result before its parameters."""

    def made(text: str) -> str:
        whole = json.loads(text)
        place = next(n for n, cell in enumerate(whole["cells"]) if "parameters" in cell["metadata"].get("tags", []))
        before = whole["cells"][place - 1]
        source = "".join(before["source"]) + "\n"
        source = under(
            source, "### What the profiles set", [(name, *values) for name, values in _set_by(study).items()]
        )
        if example := EXAMPLES.get(study):
            rows = recorded(example.sample, lambda data: _example(data, example))
            source = under(source, "### What a result looks like", rows)
        whole["cells"][place]["source"] = STUDIES[study].SETTINGS.source().splitlines(keepends=True)
        before["source"] = source.removesuffix("\n").splitlines(keepends=True)
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

    return made


def _example(data: Any, example: Example) -> list[tuple[str, ...]]:
    loads = example.loads or tuple(load.label for load in data.plan.study.loads)
    baseline = data.plan.study.baseline.name
    of: dict[tuple[str, str], list[VerdictRow]] = {(row.response, row.load): [] for row in data.verdicts}
    for row in data.verdicts:
        if (example.every_contrast or row.baseline == baseline) and row.family != BETWEEN:
            of[row.response, row.load].append(row)
    made = []
    for response, load in itertools.product(example.responses, loads):
        for row in sorted(of[response, load], key=lambda row: not row.twin):
            against = f"`{row.treatment}`" + ("" if row.baseline == baseline else f" against `{row.baseline}`")
            what = [against, REGISTRY[response].label, *([f"`{load}`"] if len(loads) > 1 else [])]
            made.append((", ".join(what), effect_of(row)))
    return made
