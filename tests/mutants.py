"""Mutate every kind of file that is read and every study's parameters: the result is data or one sentence, never
nonsense.

``PYTHONPATH=lib:tests .venv/bin/python -m mutants 10000 [--done FILE] [KIND ...]`` makes that many of each kind. A
mutant depends only on its kind and number, so a printed number makes it again. With ``--done`` a later call continues
after an earlier one. ``make test`` tries the first of each.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from commandline import SAMPLE

from meshtrial import paths
from meshtrial.commands.run import read_given
from meshtrial.compare.formats import read_file
from meshtrial.compare.tables import read_table
from meshtrial.design.plan import Plan, digest, make_plan
from meshtrial.design.responses import QUANTILES
from meshtrial.design.studies import STUDIES, study_module
from meshtrial.errors import MeshtrialError
from meshtrial.inference import infer, read_study
from meshtrial.load.recorded import Recorded, read_recorded
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore, read_json
from meshtrial.report.site import described, read_summary
from meshtrial.testbed.kubernetes.meshdata import find_meshes, read_mesh
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.resources import parse_cadvisor, parse_node, parse_summary

RUN, MESH = SAMPLE / "runs" / "01-1-none", paths.MANIFESTS / "meshes" / "istio"


def nested(depth: int) -> Any:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    return deep


ODD = (
    *(None, True, False, 0, -1, 1e308, -1e308, 10**30, 10**400, float("nan"), float("inf"), float("-inf"), 2**63),
    *("", " ", "²", "NaN", "-0", "1e999", "\x00", "\uffff", "no" * 5000, "2026-13-45T99:99:99Z", "5h3"),
    *("../../etc/passwd", [], {}, [[]], [None], {"": None}, [1, "a", {}], {"a": {"b": {"c": []}}}),
    *(nested(50), nested(3000)),
)
KEYS = ("", " ", "²", "NaN", "-0", "1e999", "\x00", "None", "[]", "no" * 25, "../../etc/passwd")
PUT = (b"\xff", b"\x00", b"\n", b'"', b"{", b",", b"-", b"e9", b"9" * 30)


def mutated(rng: random.Random, sound: Any) -> Any:
    """Return the same structure with one to three places changed, dropped or doubled."""
    for _ in range(rng.randint(1, 3)):
        sound = _once(rng, sound, 0)
    return sound


def _once(rng: random.Random, data: Any, depth: int) -> Any:
    # One in ten stops above the leaves and replaces a whole branch. An already odd value is not changed further.
    what = rng.randrange(10)
    if isinstance(data, int | float) and not isinstance(data, bool) and what < 4:
        return data * rng.choice((-1, 1e-9, 0.5, 5, 1e9))
    if not isinstance(data, dict | list) or not data or what == 9 or depth > 20:
        return rng.choice(ODD)
    if isinstance(data, list):
        place = rng.randrange(len(data))
        one = [[], data[place : place + 1] * 2][what] if what < 2 else [_once(rng, data[place], depth + 1)]
        return [*data[:place], *one, *data[place + 1 :]]
    key, rest = rng.choice(list(data)), dict(data)
    if what == 0:
        del rest[key]
    elif what == 1:  # a key has one value: it gets another name
        rest[rng.choice(KEYS)] = rest.pop(key)
    else:
        rest[key] = _once(rng, data[key], depth + 1)
    return rest


def damaged(rng: random.Random, sound: bytes) -> bytes:
    """Cut off, repeat, insert, overwrite or reverse bytes."""
    place, what = rng.randrange(len(sound)), rng.randrange(5)
    before, after = sound[:place], sound[place:]
    if what == 0:
        return before
    if what == 1:
        return before + sound[max(0, place - 40) :]
    if what == 2:
        return before + rng.choice(PUT) + after
    if what == 3:
        return before + rng.choice(PUT) + after[rng.randint(1, 8) :]
    return before + bytes([after[0] ^ (1 << rng.randrange(8))]) + after[1:]


def as_json(data: Any) -> bytes:
    # An integer with more digits than Python prints by default is still a number in JSON.
    return json.dumps(data, default=str).encode()


@dataclass(frozen=True)
class Kind:
    """One kind of foreign input: a valid one, its encoding to bytes, and its reader."""

    sound: bytes
    parse: Callable[[Path], object]
    load: Callable[[bytes], Any] | None = None
    dump: Callable[[Any], bytes] = as_json
    share: float = 1.0  # share of the requested number, for slow kinds


def _plan(path: Path) -> object:
    data = read_json(path)
    body = {key: value for key, value in data.items() if key != "sha256"}
    # Sealed again, so that the altered plan itself is tested and not its seal.
    try:
        seal = digest(body)
    except ValueError:
        seal = ""
    return Plan.from_dict(body | {"sha256": seal})


def _run(path: Path) -> object:
    return RunRecord.from_dict(read_json(path), str(path))


def _records(path: Path) -> object:
    record = RunRecord.from_dict(read_json(path), str(path))
    store = StudyStore.open(SAMPLE)
    others = [other for other in store.records() if other.run_id != "01-1-none"]
    return infer(store.plan, [record, *others])


def _mesh(path: Path) -> object:
    return read_mesh(path.parent)


def _options(path: Path) -> object:
    return find_meshes(KubernetesOptions.read({"kubernetes": {"cluster_file": str(path)}}))


def _kubelet(path: Path) -> object:
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    return (parse_summary(data), parse_node(data)) if isinstance(data, dict) else None


def _cadvisor(path: Path) -> object:
    return parse_cadvisor(path.read_bytes().decode(errors="replace"))


def _defaults(study: str, but: str = "") -> dict[str, Any]:
    settings = study_module(study).SETTINGS.settings
    return {name: one.text(one.default) for name, one in settings.items() if name != but}


def _given(study: str, path: Path) -> object:
    """As after ``-p``: pairs of a mapping, or whatever stands on a line."""
    text = path.read_bytes().decode(errors="replace")
    try:
        data = json.loads(text)
        pairs = [f"{name}={value}" for name, value in data.items()] if isinstance(data, dict) else [str(data)]
    except (ValueError, RecursionError):
        pairs = text.splitlines()
    return _planned(study, read_given(study, None, pairs))


def _given_in_file(path: Path) -> object:
    return _planned("ambient_vs_no_mesh", read_given("ambient_vs_no_mesh", path, []))


def _planned(study: str, given: Mapping[str, Any]) -> object:
    """Accepted parameters are planned too, unless that takes minutes."""
    module = study_module(study)
    checked = module.SETTINGS.read(given)
    if checked.study_dir:
        return None
    made = module.build(checked)
    return make_plan(made) if made.blocks * len(made.treatments) * len(made.loads) <= 1000 else made


CADVISOR = b"""# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed
container_cpu_usage_seconds_total{container="app",namespace="m",pod="echo-1",image="x"} 1.5 1732302935683
container_memory_working_set_bytes{container="app",namespace="m",pod="echo-1"} 8.1e+06 1732302935683
container_cpu_cfs_throttled_seconds_total{container="app",namespace="m",pod="echo-1"} 0 1732302935683
"""
SUMMARY = {
    "node": {"cpu": {"time": "2026-11-22T21:28:55Z", "usageNanoCores": 5e8, "usageCoreNanoSeconds": 10**12}},
    "pods": [
        {
            "podRef": {"name": "echo-1", "namespace": "m", "uid": "u"},
            "containers": [
                {
                    "name": "app",
                    "cpu": {"time": "2026-11-22T21:28:55.5Z", "usageCoreNanoSeconds": 1500000000},
                    "memory": {"time": "2026-11-22T21:28:55Z", "workingSetBytes": 8100000},
                }
            ],
        }
    ],
}
LOG = b"".join(
    json.dumps(
        {
            "latency": 0.001,
            "timestamp": 10**18 + k * 10**7,
            "thread": k % 2,
            "iter": k // 2,
            "ok": True,
            "details": "200",
        }
    ).encode()
    + b"\n"
    for k in range(20)
)
TABLE = b"run,block,treatment,response,value\n" + b"".join(
    f"{k},{k},{name},p50_ms,{0.8 + k / 100}\n".encode() for name in ("none", "istio") for k in range(6)
)
OPTIONS = {
    "namespace": "m",
    "meshes": {
        "istio": {
            "version": "1",
            "values": {"istiod": {"a": 1}},
            "versions": {"1.30": {"version": "1.30.4", "charts": {"istiod": {"path": "x"}}, "runs": {"istiod": "y"}}},
        }
    },
    "images": {"fortio": "x:1"},
    "app_node_selector": {"a": "b"},
    "app_tolerations": [{"key": "a", "effect": "NoSchedule"}],
    "hold_ms": 10,
    "keep": False,
}


def _yaml(data: Any) -> bytes:
    return yaml.safe_dump(json.loads(as_json(data))).encode()


def _summary() -> bytes:
    """The site's record of a study, with one verdict."""
    return as_json(asdict(described(read_study(StudyStore.open(SAMPLE)), "")) | {"schema": "meshtrial.site/2"})


KINDS = {
    "fortio": Kind((RUN / "fortio.json").read_bytes(), lambda path: read_recorded(path, 10.0), json.loads),
    "access log": Kind(LOG, lambda path: read_recorded(path, 1.0)),
    "table": Kind(TABLE, read_table),
    "run record": Kind((RUN / "run.json").read_bytes(), _run, json.loads),
    "analysed record": Kind((RUN / "run.json").read_bytes(), _records, json.loads, share=0.02),
    "plan": Kind((SAMPLE / "plan.json").read_bytes(), _plan, json.loads),
    "mesh": Kind((MESH / "mesh.yaml").read_bytes(), _mesh, yaml.safe_load, _yaml),
    "cluster file": Kind(yaml.safe_dump(OPTIONS).encode(), _options, yaml.safe_load, _yaml),
    "kubelet summary": Kind(as_json(SUMMARY), _kubelet, json.loads),
    "cAdvisor": Kind(CADVISOR, _cadvisor),
    "site summary": Kind(_summary(), lambda path: read_summary(path).day, json.loads),
    "parameters in a file": Kind(
        yaml.safe_dump(_defaults("ambient_vs_no_mesh", but="design")).encode(), _given_in_file, yaml.safe_load, _yaml
    ),
    **{
        f"parameters of {name}": Kind(as_json(_defaults(name)), functools.partial(_given, name), json.loads)
        for name in sorted(STUDIES)
    },
}


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _lines(data: bytes) -> Any:
    return [json.loads(line) for line in data.splitlines()]


def _as_lines(data: Any) -> bytes:
    return b"\n".join(map(as_json, data if isinstance(data, list) else [data])) + b"\n"


# Every output of another load generator in the tests, as text or bytes, and parsed where possible.
for found in sorted((paths.CHECKOUT / "tests" / "fixtures" / "formats").iterdir()):
    sound = found.read_bytes()
    reader = functools.partial(read_file, sample_floor=0.1)
    if _is_json(sound):
        KINDS[found.name] = Kind(sound, reader, json.loads)
    elif found.suffix == ".json":
        KINDS[found.name] = Kind(sound, reader, _lines, _as_lines)
    else:
        KINDS[found.name] = Kind(sound, reader)


def said_against(parse: Callable[[], object]) -> str:
    """Return the parser's objection to the data: one sentence, or nothing. Any error besides its own is a failure."""
    try:
        parse()
    except MeshtrialError as refused:
        said = str(refused)
        assert "\n" not in said
        assert len(said) <= 2000
        return said
    return ""


def nonsense(read: object) -> str:
    """Return why accepted data cannot be the result of a run; empty if it can."""
    if not isinstance(read, Recorded):
        return ""
    values, bounds = read.responses, read.bounds
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            return f"{name} is {value}"
    for prefix in ("latency", "latency_corrected"):
        known = [(f"{prefix}_{q}_s", values[f"{prefix}_{q}_s"]) for q in QUANTILES if f"{prefix}_{q}_s" in values]
        for (one, low), (other, high) in itertools.pairwise(known):
            if low - bounds.get(one, 0.0) > (high + bounds.get(other, 0.0)) * (1 + 1e-6):
                return f"{one} is {low} and {other} is {high}"
    largest = values.get("latency_max_s", math.inf) * (1 + 1e-6) + bounds.get("latency_max_s", 0.0)
    for name, value in values.items():
        if name.startswith("latency_") and value - bounds.get(name, 0.0) > largest and "corrected" not in name:
            return f"{name} is {value} and the largest is {largest}"
    if (
        values.get("error_ratio", 0.0) > 1
        or values.get("achieved_rps", 0.0) > 1e8
        or max(values.values(), default=0) > 1e15
    ):
        return f"{dict(values)}"
    return ""


def mutant(name: str, number: int) -> bytes:
    """Return the mutant of this number; structures are mutated twice as often as bytes, if a kind has a structure."""
    rng, kind = random.Random(f"{name} {number}"), KINDS[name]
    if kind.load is None or not rng.randrange(3):
        return damaged(rng, kind.sound)
    try:
        return kind.dump(mutated(rng, kind.load(kind.sound)))
    except (ValueError, RecursionError, OverflowError):  # data that the writer itself cannot write is no file
        return damaged(rng, kind.sound)


def tried(name: str, data: bytes, folder: Path) -> str:
    """Return the error message for it; AssertionError if nonsense was accepted, any other error if the reader broke."""
    path = folder / "input"
    if name == "mesh":  # read with the files beside it
        path = folder / MESH.name / "mesh.yaml"
        if not path.exists():
            shutil.copytree(MESH, path.parent)
    path.write_bytes(data)
    read: list[object] = []
    said = said_against(lambda: read.append(KINDS[name].parse(path)))
    assert not (why := nonsense(read[0]) if read else ""), why
    return said


def main(argv: list[str]) -> int:
    """Print one line per kind; exit code 1 if a reader broke."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int, help="of each kind")
    parser.add_argument("kinds", nargs="*", default=[], metavar="KIND", help=f"all, or of {', '.join(KINDS)}")
    parser.add_argument("--done", type=Path, metavar="FILE", help="how many of each were tried; read, and written")
    given = parser.parse_args(argv)
    done = json.loads(given.done.read_text()) if given.done and given.done.exists() else {}
    broken = 0
    with tempfile.TemporaryDirectory() as private:
        for name in given.kinds or KINDS:
            began, refused, first = time.monotonic(), 0, done.get(name, 0)
            count = max(1, round(given.count * KINDS[name].share))
            for number in range(first, count):
                try:
                    refused += bool(tried(name, mutant(name, number), Path(private)))
                except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
                    broken += 1
                    print(f"{name} {number}: {traceback.format_exc()}", flush=True)
                if given.done and (number % 500 == 499 or number == count - 1):
                    done[name] = number + 1
                    given.done.write_text(json.dumps(done))
            made = max(0, count - first)
            print(f"{name}: {made} mutants, {refused} refused, {time.monotonic() - began:.0f} s", flush=True)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
