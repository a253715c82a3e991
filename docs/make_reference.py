"""Generate the parts of the documentation that follow from the code and from recorded studies.

``.venv/bin/python docs/make_reference.py`` rewrites them after a change of a column, parameter, command or verdict.
With the argument ``calibration`` it measures the error rates again too, which takes long. A generated table replaces
the rows below its heading, or everything from its heading to the end of the page. The pages are Markdown, so that the
repository can be read without a build. What Sphinx takes from docstrings is not generated here.
"""

import argparse
import csv
import functools
import io
import itertools
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from meshtrial import paths
from meshtrial.design.changes import LABELS
from meshtrial.design.load import CapacitySearch
from meshtrial.design.responses import REGISTRY, Response
from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Study
from meshtrial.records.columns import VERDICTS
from meshtrial.records.schema import VerdictRow
from meshtrial.report.checks import KINDS
from meshtrial.vocabulary import BETWEEN, QUALIFIERS, VerdictLabel, Warning

Made = TypeVar("Made")
SCHEMA = Path("docs", "schema", "export.schema.json")
PAGE = Path("docs", "reference", "files.md")
TEXT = {"type": "string"}
TYPES: dict[Any, dict[str, Any]] = {
    str: TEXT,
    VerdictLabel: {"enum": [*VerdictLabel]},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    int | None: {"type": ["integer", "null"]},
    float | None: {"type": ["number", "null"]},
    tuple[Warning, ...]: {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"code": TEXT, "message": TEXT},
            "required": ["code", "message"],
            "additionalProperties": False,
        },
    },
}
MESHES = "mesh_comparison-20261125T022942Z-a6e76e54"
AT_200 = "mesh_comparison-20261126T023809Z-4289d2f7"
FEATURES = {
    "Istio": "feature_impact-20261124T194022Z-df1edfcf",
    "ambient with a waypoint": "feature_impact-20261125T025325Z-5aab3a31",
    "Kuma": "feature_impact-20261126T041823Z-f66225f7",
    "Linkerd": "feature_impact-20261126T072603Z-32a77933",
}
# Beside idle neighbours and alone: each was made because p50 was inconclusive in those before.
BESIDE = (
    "feature_impact-20261126T021125Z-dccabaca",
    "feature_impact-20261126T030549Z-53769de1",
    "feature_impact-20261126T063935Z-1ae2e8f3",
)
DELAYED = "calibration-20261125T105420Z-88959172"
EXCHANGED = "feature_impact-20261128T145855Z-62be2a59"
# Six sessions, and three of a study of its own that the six did not know
SESSIONS = ("ambient_vs_no_mesh-20261128T130525Z-c9efe0a4", "ambient_vs_no_mesh-20261128T150421Z-90dd52d8")
CHANGED = "propagation-20261125T105822Z-ca8a6414"
OBEYED = "propagation-20261125T155117Z-fc8d9e67"
UNCALLED = ("scale_out-20261125T203358Z-bfdc5fd2", "scale_out-20261126T033821Z-2b3b905f")
HELD = ("proxy_largest_memory_bytes", "data_plane_memory_bytes", "control_plane_memory_bytes")
QUOTED = ("latency_p50_s", "path_cpu_s_per_request")
CALIBRATION = Path("docs", "reference", "calibration.csv")
# The summary of the error rates: what a row is called, and the checks of the full table that it covers.
SUMMARY = {
    "false positives": r"false positives: ",
    "coverage of the interval": r"coverage: (effect|additive effect, )",
    "false equivalence at the margin": r"false equivalent: ",
    "false *material* at the margin": r"family-wise error: material",
    "wrong verdicts in a family of five contrasts": r"family-wise error: 5 contrasts",
    "wrong verdicts among ten pairs, max-T": r"family-wise error: 10 pairs",
    "ten equal pairs: an interval excludes zero and is not called": r"limit: 10 pairs.*not called",
    "wrong verdicts of max-T where skewness differs": r"limit: (10 pairs.*two treatments|4 contrasts)",
    "intervals miss on one side, 10 to 30 % own failures": r"own failures: ",
    "false `saturated`, equal treatments": r"saturated: ",
    "the same without the test": r"limit: equal treatments",
    "power of ten blocks: +10 %, +20 %": r"power: n = 10, ",
    "power that a plan promised": r"power of a plan: ",
    "false positives with two looks": r"stopping: false positives",
    "coverage with the precision rule": r"stopping: coverage",
    "false alarms of a CI gate: one, two, three primary responses": r"gate: false alarms",
    "changes of level in a series without any": r"level changes: false",
    "changes of level found: 3 sd, half and three of the studies after it": r"level changes: found: .* studies$",
    "negative control: the best-looking split of a series": r"negative control: level changes",
    "a series that wanders: changes of level": r"limit: level changes",
    "thirty nights of that gate: at the usual level": r"gate: a month of nights: primary.*alpha 0\.05, n = \d+$",
    "thirty nights: at the level for 5 %": r"gate: a month of nights: primary.*alpha 0\.00",
    "dependent blocks detected: all treatments, one treatment": r"dependent blocks: .* treatments?: detected",
    "interval and p-value disagree": r"agreement: ",
    "negative control: sequential order": r"negative control: sequential",
    "negative controls: early reading, added blocks": r"negative control: (tested|five)",
    "wrong verdicts with sessions as the unit": r"family-wise error: .* sessions as",
    "coverage with sessions as the unit": r"coverage: .* sessions as",
    "negative control: blocks as the unit where sessions differ, intervals miss": r"negative control: .* sessions",
    "another session lies in its prediction": r"prediction: .* spread",
    "the same where sessions are not normal": r"limit: prediction: ",
    "coverage of the ratio for a proportional, of the added amount for a constant cost": r"coverage: (cost|constant)",
    "the other way round: intervals miss": r"limit: (cost|constant)",
    "slow states: a difference called": r"dependent blocks: .*: called|limit: .* one treatment: called different$",
    "zero slopes of sizes that feel the machine unequally: called": r"limit: slopes, .*: called$",
    "a fixed budget, margin that follows the baseline: false equivalence": r"limit: cost equal to a fixed budget",
    "another program: intervals miss, unchecked": r"limit: another program",
    "another program: coverage with the check": r"coverage: another program",
}


def built(name: str, **given: object) -> Study:
    """A study as its notebook builds it, by its name and the parameters that are given."""
    return STUDIES[name].build(STUDIES[name].SETTINGS.read({"seed": 1} | given))


def under(text: str, heading: str, rows: Iterable[Sequence[str]]) -> str:
    """A page with these rows in the first table below a heading; the table's own head stays."""
    mark = f"{heading}\n"
    start = text.index(mark) + len(mark)
    before, after = text[:start], text[start:]
    made = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    found, count = re.subn(r"(?m)^(\|(?:-+\|)+\n)(?:\|.*\n)*", lambda head: head[1] + made, after, count=1)
    assert count, f"no table below {heading!r}"
    return before + found


def plain(text: str) -> str:
    """Words of the reports with the blanks of a text file."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def schema(text: str) -> str:
    """The schema of an export, with the verdict rows as they are declared."""
    whole = json.loads(text)
    hints = get_type_hints(VerdictRow)
    whole["properties"]["verdicts"]["items"] = {
        "description": "one contrast, response and load",
        "type": "object",
        "properties": {name: {"description": one.meaning} | TYPES[hints[name]] for name, one in VERDICTS.items()},
        "required": [*VERDICTS],
        "additionalProperties": False,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(text: str) -> str:
    """The description of the data, with the table of the verdicts' columns as they are declared."""
    units = {"": "", "response": "; in the response's stored unit"}
    rows = [(f"`{name}`", f"{one.meaning}{units[one.unit]}") for name, one in VERDICTS.items()]
    return under(text, "### verdicts.json", rows)


def words() -> list[tuple[str, str]]:
    """The verdicts and their meanings; words of one meaning but for a direction share a row."""
    rows: dict[str, list[str]] = {}
    for word in VerdictLabel:
        rows.setdefault(word.standing if word.different else word.meaning, []).append(f"`{word}`")
    said = {"different": "a difference was shown at the study's error level"}
    return [(", ".join(names), said.get(meaning, meaning)) for meaning, names in rows.items()]


def verdicts(text: str) -> str:
    """The reference of the verdicts, of the qualifiers of a difference, and of the checks of a study."""
    named = [(f"*{name}*", meaning) for name, meaning in QUALIFIERS.items()]
    asked = [asked for kind, asked in KINDS.items() if kind != "limits"]
    return under(
        under(under(text, "# Verdicts", words()), "## Qualifiers of a difference", named), "## Six checks", asked
    )


def _value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
    return "empty" if value == "" else f"`{text}`"


def parameters(text: str) -> str:
    """All parameters, with the studies that have them."""
    found: dict[tuple[str, object, str], list[str]] = {}
    for study, module in STUDIES.items():
        for one in module.SETTINGS.settings.values():
            allowed = ", ".join(f"`{value}`" for value in one.allowed if value) or one.bounds
            said = one.help.replace("|", "\\|") + (f"; {allowed}" if allowed else "")
            found.setdefault((one.name, one.text(one.default), said), []).append(study)
    rows = [
        (f"`{name}`", _value(default), said, "all" if len(studies) == len(STUDIES) else initials(studies))
        for (name, default, said), studies in found.items()
    ]
    return under(text, "## All parameters", rows)


def initials(studies: Iterable[str]) -> str:
    """Return the footnote of the studies that have a parameter: the first letters of their names.

    There are as many letters as distinguish a study from all others.
    """

    def letters(study: str) -> str:
        lengths = range(1, len(study) + 1)
        return next(study[:n] for n in lengths if sum(other.startswith(study[:n]) for other in STUDIES) == 1)

    return "".join(letters(study).capitalize() for study in studies)


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


def responses(text: str) -> str:
    """Every response with its margin; names that differ only in percentile, part or change share a row."""
    from meshtrial.design.responses import default_scales
    from meshtrial.report import wording

    scales = {"difference": "added amount", "ratio": "ratio"}
    judged: dict[str, dict[str, tuple[str, ...]]] = {}
    described = []
    for one in REGISTRY.values():
        pattern, label = name_pattern(one)
        if one.margin is None:
            described.append((f"`{one.name}`", one.label, wording.unit(one)))
            continue
        margin = plain(wording.margin_text(one.name, one.margin).removeprefix("±"))
        cells = (label, wording.unit(one), margin, scales[default_scales()[one.name]])
        judged.setdefault(pattern, {})[one.name] = cells
    rows = []
    for pattern, members in judged.items():
        label, unit, margin, scale = next(iter(members.values()))
        alike = len({cells[2] for cells in members.values()}) == 1
        rows.append((f"`{pattern}`", label, unit, margin if alike else "as the percentile", scale))
    return under(under(text, "## With verdicts", rows), "## Described only", described)


def name_pattern(response: Response) -> tuple[str, str]:
    """Return name and label of a response with its percentile, part of the system or change left open."""
    if response.percentile is not None:
        name = response.name.replace(f"{response.percentile.key}_s", "{p}_s")
        return name, response.label.replace(response.percentile.label, "percentile of")
    if (part := response.part) is not None:
        return response.name.replace(part.key, "{part}"), response.label.replace(f", {part.label}", "")
    for change, label in LABELS.items():
        if response.name.endswith(f"_{change}_s"):
            return response.name.replace(f"_{change}_s", "_{change}_s"), response.label.replace(label, "change")
    return response.name, response.label


def exit_codes(text: str, heading: str = "## Exit codes") -> str:
    """How a command ends."""
    from meshtrial.errors import Exit

    return under(
        text,
        heading,
        ((str(code.value), code.meaning.replace("--allow-excluded", "`--allow-excluded`")) for code in Exit),
    )


def command_line(text: str) -> str:
    """Every command with its options."""
    from meshtrial import cli

    made = [exit_codes(text.partition("\n## ")[0].rstrip() + "\n", "# Command line")]
    for name, about in cli.COMMANDS.items():
        (verbs,) = [a for a in cli.parser(name)._actions if isinstance(a, argparse._SubParsersAction)]
        command = verbs.choices[name]
        made.append(f"\n## meshtrial {name}\n\n{about[0].upper()}{about[1:]}.\n")
        rows = [_option(action) for action in command._actions if "--help" not in action.option_strings]
        if rows:
            made.append("\n| option | meaning |\n|---|---|\n" + "".join(f"| {a} | {b} |\n" for a, b in rows))
    return "".join(made)


def _option(action: argparse.Action) -> tuple[str, str]:
    takes = action.nargs != 0
    name = action.option_strings[-1] if action.option_strings else ""
    value = action.metavar or ("" if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        name = value or action.dest.upper()
    elif takes and value:
        name = f"{name} {value}"
    said = (action.help or "").replace("%%", "%").replace("|", "\\|")
    chosen = ", ".join(f"`{one}`" for one in action.choices) if action.choices else ""
    return f"`{name}`", "; ".join(filter(None, (said, chosen)))


def durations(text: str) -> str:
    """How long every study takes, from its plans."""
    from meshtrial.design.plan import make_plan
    from meshtrial.design.settings import PROFILES
    from meshtrial.run import estimates

    rows = []
    for study, module in STUDIES.items():
        clusters = "context" in module.SETTINGS.settings
        for profile in PROFILES:
            cells = []
            for backend in ("local", "kubernetes"):
                if backend == "kubernetes" and not clusters:
                    cells.append("–")
                    continue
                plan = make_plan(built(study, profile=profile, backend=backend))
                besides = estimates.expected_overhead_s(plan, (), Path("nowhere"))
                cells.append(f"{len(plan.runs)} runs, {_span(estimates.remaining_s(plan, plan.runs, besides))}")
            rows.append((f"`{study}`", profile, *cells))
    return under(text, "# Durations", rows)


def _span(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 36 * 3600 else f"{seconds / 86400:.1f} days"


def configuration(text: str) -> str:
    """What each mesh's treatments install: charts, values, labels, and the objects of every feature."""
    from meshtrial.testbed.kubernetes.meshread import read_mesh

    folders = sorted(path.parent for path in (paths.MANIFESTS / "meshes").glob("*/mesh.yaml"))
    meshes = sorted(map(read_mesh, folders), key=lambda mesh: (mesh.reference, not mesh.tested, mesh.name))
    return text.partition("\n## ")[0].rstrip() + "\n" + "".join(map(_mesh, meshes))


def _mesh(mesh: Any) -> str:
    where = f"../../manifests/meshes/{mesh.folder.name}"
    tested = "Its checks have run on a cluster." if mesh.tested else "Its checks have not run on a cluster."
    source = f"from [{mesh.folder.name}/mesh.yaml]({where}/mesh.yaml)"
    made = [f"\n## {mesh.title}\n\nTreatments `{mesh.name}...`, {source}. {tested}"]
    if mesh.documents:
        made[0] += f" Its project's own words: {', '.join(f'<{url}>' for url in mesh.documents)}."
    if mesh.releases:
        rows = [
            f"| `{one.name}` | `{one.chart}` | {one.version or mesh.version} | {one.repository} | `{one.namespace}` |"
            for one in mesh.releases
        ]
        made.append(
            "\n".join(["| release | chart | version | repository | namespace |", "|---|---|---|---|---|", *rows])
        )
    for name in dict.fromkeys(name for one in mesh.releases for name in one.values):
        made.append(f"[{name}]({where}/{name}):\n\n```yaml\n{(mesh.folder / name).read_text().rstrip()}\n```")
    if enrolled := _enrolled(mesh.enrol):
        made.append("\n".join(["| set on | name | value |", "|---|---|---|", *enrolled]))
    if mesh.base:
        made.append(f"Every treatment applies:\n\n{_objects(mesh, mesh.base, where)}")
    for one in mesh.features.values():
        made.append(_feature(mesh, one, where))
    return "\n\n".join(made) + "\n"


def _enrolled(enrol: Any) -> list[str]:
    found = {
        "namespace, label": enrol.namespace_labels,
        "namespace, annotation": enrol.namespace_annotations,
        "pod, label": enrol.pod_labels,
        "pod, annotation": enrol.pod_annotations,
    }
    return [
        f"| {where} | `{name}` | {', '.join(f'`{line.strip()}`' for line in value.splitlines())} |"
        for where, given in found.items()
        for name, value in given.items()
    ]


def _feature(mesh: Any, feature: Any, where: str) -> str:
    said = [f"### {mesh.name}: +{feature.name}\n\n{feature.title[:1].upper()}{feature.title[1:]}."]
    if feature.needs:
        said[0] += f" Only beside {', '.join(f'`{name}`' for name in feature.needs)}."
    if feature.bare:
        said[0] += f" Pods of the {'application' if feature.bare == 'app' else 'generators'} stay outside of the mesh."
    annotated = [f"| pod, annotation | `{name}` | `{value}` |" for name, value in feature.pod_annotations.items()]
    annotated += [f"| namespace, label | `{name}` | `{value}` |" for name, value in feature.namespace_labels.items()]
    if annotated:
        said.append("\n".join(["| set on | name | value |", "|---|---|---|", *annotated]))
    if feature.manifests:
        said.append(_objects(mesh, feature.manifests, where))
    if feature.absent:
        said.append(f"A treatment without it applies instead:\n\n{_objects(mesh, feature.absent, where)}")
    return "\n\n".join(said)


def _objects(mesh: Any, names: Sequence[str], where: str) -> str:
    """The mesh's own objects whole, with what stands beside them for everybody (a collector) by name."""
    import yaml

    made = []
    for name in names:
        own, others = [], []
        for document in re.split(r"(?m)^---\n", (mesh.folder / name).read_text()):
            item = yaml.safe_load(document)
            group = item["apiVersion"].rpartition("/")[0]
            if group in ("", "apps"):
                others.append(f"{item['kind']} `{item['metadata']['name']}`")
            else:
                own.append(document.strip())
        besides = f" (and {', '.join(others)})" if others else ""
        if not own:
            made.append(f"[{name}]({where}/{name}): {', '.join(others)}.")
            continue
        made.append(f"[{name}]({where}/{name}){besides}:\n\n```yaml\n" + "\n---\n".join(own) + "\n```")
    return "\n\n".join(made)


def _recorded(sample: str, use: Callable[[Any], Made]) -> Made:
    from meshtrial.inference import read_study
    from meshtrial.records.listing import samples
    from meshtrial.records.store import StudyStore

    with tempfile.TemporaryDirectory() as folder:
        return use(read_study(StudyStore.open(samples()[sample], Path(folder))))


def ratio_of(row: VerdictRow) -> str:
    """An effect as a cell: ratio, interval, verdict."""
    from meshtrial.report import wording

    ratio = f"{wording.change(row.ratio, row.ci_high)} ({wording.change_interval(row.ci_low, row.ci_high)}), "
    return plain(f"{'' if row.ratio is None else ratio}{short_verdict(row)}")


def short_verdict(row: VerdictRow) -> str:
    """A verdict, for a difference with its qualifier; without the size of a new study or the deciding floor."""
    return f"{row.verdict}, {row.qualifier}" if row.verdict.different and row.qualifier else str(row.verdict)


def _against_baseline(data: Any) -> list[tuple[str, ...]]:
    loads = [load.label for load in data.plan.study.loads]
    baseline = data.plan.study.baseline
    rows = {(row.treatment, row.load, row.response): row for row in data.verdicts if row.baseline == baseline.name}
    return [
        (f"`{one.name}`", *(ratio_of(rows[one.name, load, response]) for load in loads for response in QUOTED))
        for one in data.plan.study.treatments
        if one != baseline
    ]


def _places(data: Any) -> list[tuple[str, ...]]:
    from meshtrial.inference.ranking import rankings

    loads = [load.label for load in data.plan.study.loads]
    of = {(one.load, one.response.name): one for one in rankings(data)}
    columns = [{p.treatment: p.places for p in of[load, name].places} for load in loads for name in QUOTED]
    first = [place.treatment for place in of[loads[0], QUOTED[0]].places]
    return [(f"`{name}`", *(column[name] for column in columns)) for name in first]


def _each_feature(data: Any) -> list[tuple[str, ...]]:
    """What a treatment's last feature adds to the same treatment without it."""
    rows = {(row.treatment, row.baseline, row.response): row for row in data.verdicts}
    pairs = dict.fromkeys((row.treatment, row.baseline) for row in data.verdicts if row.response in QUOTED)
    features = [pair for pair in pairs if pair[0].rpartition("+")[0] == pair[1]]
    return [(f"`{a}`", *(ratio_of(rows[a, b, response]) for response in QUOTED)) for a, b in features]


def _alone(data: Any) -> list[tuple[str, ...]]:
    """What a treatment costs alone, against the same beside idle neighbours."""
    study = data.plan.study
    rows = {(row.treatment, row.response): row for row in data.verdicts if row.baseline == study.baseline.name}
    alone = [one.name for one in study.treatments if one.version]
    beside = f"{study.blocks} blocks, {len(study.treatments) - 2} neighbours"
    return [(beside, *(_effect_in_short(rows[name, r]) for r in QUOTED)) for name in alone]


def _obeyed(data: Any) -> list[tuple[str, ...]]:
    """Until all requests obey a change: the median of the changes that were, their range, and the contrast."""
    from meshtrial.report import wording

    rows, none, quiet = [], data.plan.study.baseline.name, data.plan.study.loads[0].label
    own = [run for run in data.runs if run.load == quiet]
    against = {(row.treatment, row.response): row for row in data.verdicts if (row.baseline, row.load) == (none, quiet)}
    for treatment in data.plan.study.treatments:
        for name, label in LABELS.items():
            response = f"propagation_all_{name}_s"
            made = [one for run in own if run.treatment == treatment.name for one in run.extra["changes"]]
            took = [one["all_s"] for one in made if one["name"] == name and one["all_s"] is not None]
            if not took:
                continue
            row = against.get((treatment.name, response))
            shown = [wording.in_unit(response, value) for value in (statistics.median(took), min(took), max(took))]
            said = "–" if row is None else _effect_in_short(row)
            times = f"{shown[0]} ({shown[1]} to {shown[2]})"
            rows.append((f"`{treatment.name}`", label, str(len(took)), plain(times), said))
    return rows


def _effect_of(row: VerdictRow) -> str:
    """The effect that the verdict is of, its interval, and the verdict."""
    from meshtrial.report import wording

    return plain(f"{wording.effect(row)} ({wording.effect_interval(row)}), {wording.verdict_text(row)}")


def _effect_in_short(row: VerdictRow) -> str:
    """The effect that the verdict is of, its interval, and the verdict in short."""
    from meshtrial.report import wording

    return plain(f"{wording.effect(row)} ({wording.effect_interval(row)}), {short_verdict(row)}")


def _by_session(data: Any) -> list[tuple[str, ...]]:
    """Return the range of the effects of the sessions and the prediction of another one, by treatment and response."""
    from meshtrial.inference.sessions import session_effects
    from meshtrial.report import wording

    rows = [row for row in data.verdicts if row.response in QUOTED and not row.twin]
    made = []
    for row, by_difference in itertools.product(rows, (True, False)):
        found = session_effects(data, row, by_difference=by_difference)
        ends = [(min(found.estimates), max(found.estimates)), (found.low, found.high)]
        write = functools.partial(wording.interval_in_unit, row.response) if by_difference else wording.change_interval
        label = wording.short_label(row.response)
        made.append((f"`{row.treatment}`", label, *(plain(write(*each)) for each in ends)))
    return made


def _unused(data: Any) -> list[tuple[str, ...]]:
    """Return what a thousand unused services cost with each treatment, over blocks."""
    from meshtrial.inference.scaling import UNUSED, growths
    from meshtrial.report import wording

    costs = {(one.ladder.treatment, one.ladder.response): one.cost for one in growths(data, HELD, UNUSED)}
    rows = []
    for treatment in dict.fromkeys(name for name, _ in costs):
        cells = []
        for response in HELD:
            slope = costs[treatment, response]
            ends = (slope.estimate, slope.low, slope.high)
            value, low, high = (plain(wording.in_unit(response, 1000 * end, sign=True)) for end in ends)
            cells.append(f"{value} ({low.rpartition(' ')[0]} to {high})")
        rows.append((f"`{treatment}`", *cells))
    return rows


def _delays(data: Any) -> list[tuple[str, ...]]:
    """Return the effect of each injected delay."""
    none = data.plan.study.baseline.name
    rows = [row for row in data.verdicts if (row.response, row.baseline) == (QUOTED[0], none)]
    rows.sort(key=lambda row: not row.twin)
    return [(f"`{row.treatment}`", _effect_in_short(row)) for row in rows]


def results(text: str) -> str:
    """What the recorded studies found."""
    tables: list[tuple[str, str | tuple[str, ...], Callable[[Any], list[tuple[str, ...]]]]] = [
        ("## What each mesh costs", MESHES, _against_baseline),
        ("## What each feature adds", tuple(FEATURES.values()), _each_feature),
        ("## What a post-quantum key exchange costs", EXCHANGED, _against_baseline),
        ("## What idle neighbours cost", BESIDE, _alone),
        ("## How long until a change takes effect", OBEYED, _obeyed),
        ("## What unused services cost", UNCALLED, _unused),
        ("## Known delays, found again", DELAYED, _delays),
    ]
    for heading, samples, made in tables:
        each = (samples,) if isinstance(samples, str) else samples
        text = under(text, heading, [row for sample in each for row in _recorded(sample, made)])
    six, later = (_recorded(sample, _by_session) for sample in SESSIONS)
    text = under(text, "## Six sessions, and three later ones", [(*a, b[2]) for a, b in zip(six, later, strict=True)])
    ranks, ranks_at_200 = ({row[0]: row[1:] for row in _recorded(sample, _places)} for sample in (MESHES, AT_200))
    return under(
        text, "## Meshes against each other", [(name, *cells, *ranks_at_200[name]) for name, cells in ranks.items()]
    )


def picture(text: str) -> str:
    """The forest plot of the first page, for light and dark pages."""
    del text
    return _recorded(MESHES, _forest)


def _forest(data: Any) -> str:
    from meshtrial.report import palette
    from meshtrial.report.figures.forest import forest

    light, dark = palette.variables(dark=False), palette.variables(dark=True)
    style = (
        f"svg{{{light}color:#1c2128;background:#fff;font-family:system-ui,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{svg{{{dark}--mt-paper:#12161b;color:#e4e8ed;background:#12161b}}}}"
    )
    drawn = forest(data, "500rps-10c").svg
    return re.sub(r"^(<svg[^>]*>)", lambda head: f"{head[1]}<style>{style}</style>", drawn, count=1) + "\n"


@dataclass(frozen=True)
class Example:
    """The rows of a recorded study that its notebook shows."""

    sample: str
    responses: tuple[str, ...] = QUOTED[:1]
    loads: tuple[str, ...] = ()  # all of them where none is named
    every_contrast: bool = False  # those too whose baseline is another treatment than the study's


MOST_LISTED = 9  # treatments in the table of a notebook's profiles
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
            rows = _recorded(example.sample, lambda data: _example(data, example))
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
            made.append((", ".join(what), _effect_of(row)))
    return made


def rate(row: Any) -> tuple[str, ...]:
    """A measured error rate, coverage or power as a row."""
    must = "exactly 0" if row.rule == "exactly" else f"{row.rule} {100 * row.nominal:.3g} %"
    measured = f"{100 * row.observed:.1f} % ({100 * row.mc_se:.1f})"
    return f"{row.check.lstrip('0123456789 ')}: {row.cell}", must, measured


def calibration(_: str) -> str:
    """The table of error rates, measured now."""
    from meshtrial import stats
    from meshtrial.commands.calibrate import FULL

    return rates(stats.run_all(1, FULL))


def rates(rows: Iterable[Any]) -> str:
    """Return measured rows as CSV."""
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(
        [("check", "must be", "measured (standard error)"), *map(rate, rows)]
    )
    return table.getvalue()


def calibration_summary(text: str) -> str:
    """The page of error rates, with a summary of the full table."""
    table = csv.reader(io.StringIO((paths.CHECKOUT / CALIBRATION).read_text()))
    cells = [(check, must, measured.partition(" ")[0]) for check, must, measured in table if "%" in measured]
    rows = []
    for what, checks in SUMMARY.items():
        matching = [(must, float(measured)) for check, must, measured in cells if re.match(checks, check)]
        required = ", ".join(dict.fromkeys(must for must, _ in matching))
        lowest, highest = (f"{end(measured for _, measured in matching):.1f}" for end in (min, max))
        measured = f"{lowest} %" if lowest == highest else f"{lowest} to {highest} %"
        rows.append((what, required, measured, str(len(matching))))
    return under(text, "## Measured", rows)


MADE: dict[Path, Callable[[str], str]] = {
    SCHEMA: schema,
    PAGE: page,
    Path("docs", "reference", "verdicts.md"): verdicts,
    Path("docs", "reference", "parameters.md"): parameters,
    Path("docs", "reference", "responses.md"): responses,
    Path("docs", "reference", "command-line.md"): command_line,
    Path("docs", "reference", "durations.md"): durations,
    Path("docs", "how-to", "ci-gate.md"): exit_codes,
    Path("docs", "explanation", "calibration.md"): calibration_summary,
    Path("docs", "explanation", "results.md"): results,
    Path("docs", "meshes.svg"): picture,
    **{Path("notebooks", f"{study}.ipynb"): notebook(study) for study in STUDIES},
}


if __name__ == "__main__":
    # The summary reads the table, so the table comes first.
    for path, made in (({CALIBRATION: calibration} if "calibration" in sys.argv[1:] else {}) | MADE).items():
        where = paths.CHECKOUT / path
        where.write_text(made(where.read_text()))
