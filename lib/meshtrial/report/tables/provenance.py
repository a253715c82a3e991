"""Where the numbers come from, how to make them again, and how to cite the study.

A study is cited by its title, date, the digests of plan and verdicts, and the software. Records do not name who
measured it, so the citation has no author of the study. CITATION.cff, which the wheel contains, describes the software.
"""

import hashlib
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from meshtrial import __version__, paths
from meshtrial.design.plan import Plan
from meshtrial.errors import MeshtrialError
from meshtrial.inference.diagnosis import versions_of
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.markup import Cell, Column, Fragment, Table, facts, join

# Names in environment.json in reading order, with their labels; other names follow unchanged.
_LABELS = {
    "cpu_model": "CPU",
    "cpus": "cores",
    "cpus_allowed": "cores this process may use",
    "cpu_governor": "CPU governor",
    "cpu_idle": "idle cores",
    "keep_awake": "idle cores held awake",
    "halt_polling_ns": "halt polling / ns",
    "hypervisor": "virtual machine",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "system": "operating system",
    "machine": "architecture",
    "python": "Python",
}
_ELSEWHERE = ("schema", "plan_sha256", "backend", "sealed_in")
_NO_HOST = ("hostname", "user", "home", "cwd", "executable", "path")
_HASH = re.compile(r"[0-9a-f]{32,}")
FILE = "CITATION.cff"
# Characters that are special to TeX, and their escapes.
_TEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_TEX["^"] = r"\textasciicircum{}"


def reproduce_command(plan: Plan) -> str:
    """Return the command that runs the same plan.

    It leaves out empty text and 0, which stand for defaults, and paths, which belong to one machine.
    """
    words = ["meshtrial", "run", plan.study.name]
    for name, value in plan.study.parameters.items():
        unset = value in ("", None) or (value == 0 and not isinstance(value, bool))
        if not unset and name != "study_dir":
            text = str(value) if isinstance(value, str | bool | int | float) else json.dumps(value)
            words += ["-p", f"{name}={text}"]
    return shlex.join(words)


def recorded_at(data: StudyData) -> str:
    """Return the study's folder from ``data/`` on, which is the same on every machine."""
    parts = data.path.parts
    start = len(parts) - 1 - parts[::-1].index("data") if "data" in parts else -2
    return str(Path(*parts[start:]))


def provenance(data: StudyData) -> Fragment:
    """Show digests, versions, machine, the commands that repeat study and report, and the citation."""
    plan, command = data.plan, reproduce_command(data.plan)
    again = f"meshtrial report {shlex.quote(recorded_at(data))}"
    record = [
        ("plan SHA-256", plan.sha256),
        ("verdicts SHA-256", verdicts_sha256(data)),
        ("records", recorded_at(data)),
        ("seed", str(plan.study.seed)),
        ("backend", plan.study.backend),
    ]
    if data.runs:
        first, last = min(data.runs, key=lambda r: r.start_unix_s), max(data.runs, key=lambda r: r.start_unix_s)
        record += [
            ("first run started", first.started_at),
            ("last run finished", last.finished_at),
            ("between first and last start", wording.duration(last.start_unix_s - first.start_unix_s)),
        ]
    record.append(("report made by", f"meshtrial {__version__}"))
    # The testbed's description of the host may be nested one level deeper, with the same names.
    flat = {name.removeprefix("testbed "): value for name, value in _flatten(data.environment)}
    machine = [(label, _as_text(name, flat.pop(name))) for name, label in _LABELS.items() if name in flat]
    machine += [(name, _as_text(name, value)) for name, value in flat.items() if name not in _ELSEWHERE]
    machine += [(f"{name} (in the runs)", text) for name, text in _run_versions(data)]
    folded = join(
        _pairs("The record", record).folded("digests of plan and verdicts, seed, first and last run"),
        *(table.folded("what differs between them") for table in _versions_tables(data)),
        _pairs("The machine and the versions", machine).folded("CPU, kernel, every program's version"),
    )
    seal = {"plan": plan.sha256, "verdicts": verdicts_sha256(data), "records": recorded_at(data)}
    return Fragment("provenance", seal, command, again, folded, citation(data))


def _versions_tables(data: StudyData) -> Iterator[Table]:
    """Yield, for each data plane of which a study compares versions, a table of what differs between them."""
    treatments = data.plan.study.treatments
    for plane in dict.fromkeys(treatment.dataplane for treatment in treatments if treatment.version):
        names = list(dict.fromkeys(one.versioned for one in treatments if one.dataplane == plane))
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for treatment, programs in versions_of(data.runs).items():
            for program, versions in programs.items():
                if treatment.dataplane == plane:
                    found[program][treatment.versioned] |= versions

        def ran_in(name: str, row: tuple[str, Mapping[str, set[str]]]) -> str | None:
            return ", ".join(sorted(row[1][name])) or None

        columns: list[Column[tuple[str, Mapping[str, set[str]]]]] = [
            Column("program", lambda row: row[0]),
            *(Column(name, partial(ran_in, name), wide=True) for name in names),
        ]
        differ = [row for row in sorted(found.items()) if len({ran_in(name, row) for name in names}) > 1]
        caption = f"Versions of {plane}, as the runs recorded them"
        note = "Anything not listed was the same in all of them."
        yield Table.from_rows(caption, columns, differ, note, show_caption=False)


def _run_versions(data: StudyData) -> Iterator[tuple[str, str]]:
    """Yield each version that runs recorded. Treatments may differ in it, runs of one treatment should not."""
    seen: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for run in data.runs:
        for name, version in run.versions.items():
            seen[name][run.treatment][version] = None
    for name, by_treatment in sorted(seen.items()):
        several = {version for versions in by_treatment.values() for version in versions}
        treatments: dict[str, list[str]] = defaultdict(list)
        for treatment, versions in by_treatment.items():
            treatments[", ".join(versions)].append(treatment)
        text = "; ".join(
            text if len(several) == 1 else f"{text} in {', '.join(sorted(names))}" for text, names in treatments.items()
        )
        changed = any(len(versions) > 1 for versions in by_treatment.values())
        yield name, f"{text} (WARNING: it changed within the study)" if changed else text


def _flatten(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        full = f"{prefix} {name}".strip()
        if str(name).lower() in _NO_HOST:  # it would identify the machine or its owner
            continue
        if isinstance(value, Mapping):
            yield from _flatten(value, full)
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value, start=1):
                yield from _flatten(item, f"{full} {item.get('name', number)}")
        else:
            yield full, value


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and isinstance(value, int | float):
        return wording.mebibytes(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    if value is None or value == "":
        return "not recorded"
    return str(value)


def _pairs(caption: str, rows: Sequence[tuple[str, str]]) -> Table:
    cells = [
        (label.replace("_", " "), Cell(text, html=Fragment("hash", text) if _HASH.fullmatch(text) else None))
        for label, text in rows
    ]
    return facts(caption, ("fact", "recorded"), cells, show_caption=False)


@cache
def software() -> Mapping[str, Any]:
    """Return the content of CITATION.cff."""
    file = paths.CHECKOUT / FILE
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise MeshtrialError(f"{file}: cannot be read ({error}); restore it, or install meshtrial again") from None
    if not isinstance(content, dict):
        raise MeshtrialError(f"{file}: describes no software; restore it, or install meshtrial again")
    return content


def verdicts_sha256(data: StudyData) -> str:
    """Return the digest of the verdict rows, which `verify` compares with that of a new analysis."""
    body = json.dumps([row.to_dict() for row in data.verdicts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


def citation(data: StudyData) -> Fragment:
    """Return how to cite a study: a sentence, and BibTeX entries for the study and the software."""
    study, plan = data.plan.study, data.plan.sha256
    first = min(data.runs, key=lambda run: run.start_unix_s, default=None)
    day = first.started_at[:10] if first is not None else ""
    about = software()
    names = (one.get("name") or f"{one['given-names']} {one['family-names']}" for one in about["authors"])
    authors, made = " and ".join(names), f"{about['title']} {__version__}"
    recorded = f"recorded {day} with {made}" if day else f"planned with {made}"
    digests = f"plan SHA-256 {plan}, verdicts SHA-256 {verdicts_sha256(data)}"
    sentence = f"{study.title}. Study {study.name}, {recorded} ({authors}, {about['license']}); {digests}."
    fields = {
        "title": f"{{{_tex(study.title)}}}",
        "year": day[:4],
        "howpublished": _tex(f"Study {study.name}, {recorded}"),
        "note": _tex(f"{digests[0].upper()}{digests[1:]}"),
    }
    program = {
        "author": f"{{{_tex(authors)}}}",
        "title": f"{{{_tex(about['title'])}}}",
        "version": __version__,
        "note": _tex(about["abstract"]),
    }
    entry = _entry("misc", f"{about['title']}-{study.name}-{plan[:8]}", fields)
    return Fragment("citation", sentence, f"{entry}\n\n{_entry('software', about['title'], program)}")


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    key = re.sub(r"[^\w.:-]", "-", key, flags=re.ASCII)
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(str(text).split()))
