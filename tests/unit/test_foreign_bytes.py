"""Whatever stands in a file, a parser gives data or one clear sentence: mutated inputs of every kind, no traceback.

`FOREIGN_CASES=1000000 pytest tests/unit/test_foreign_bytes.py` runs more of them than the tests' time allows.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshtrial import paths
from meshtrial.compare.formats import read_file
from meshtrial.compare.tables import read_table
from meshtrial.design.plan import Plan, digest
from meshtrial.errors import MeshtrialError
from meshtrial.inference import infer, read_study
from meshtrial.load.recorded import read_recorded
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore, read_json
from meshtrial.site.published import Published, read_published
from meshtrial.testbed.kubernetes import KubernetesOptions
from meshtrial.testbed.kubernetes.kubelet import parse_cadvisor, parse_node, parse_summary
from meshtrial.testbed.kubernetes.meshread import find_meshes, read_mesh

(SAMPLE,) = (path.parent for path in (paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json"))
RUN = SAMPLE / "runs" / "01-1-none"
CASES = int(os.environ.get("FOREIGN_CASES", "30000"))

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1e308, -1e308, 10**30, 10**400, float("nan"), float("inf"), float("-inf"), 2**63),
    *("", " ", "²", "NaN", "-0", "1e999", "\x00", "￿", "no" * 5000, "2026-13-45T99:99:99Z", "5h3", "../../etc/passwd"),
    *([], {}, [[]], [None], {"": None}, [1, "a", {}], {"a": {"b": {"c": []}}}),
)


def odd(rng: random.Random) -> Any:
    if rng.random() < 0.03:
        deep: Any = []
        for _ in range(rng.choice((50, 3000))):
            deep = [deep]
        return deep
    return rng.choice(ODD)


def mutated(rng: random.Random, data: Any) -> Any:
    """The same structure with one to three places changed, dropped or doubled; nothing is changed in place."""
    for _ in range(rng.randint(1, 3)):
        data = _once(rng, data)
    return data


def _once(rng: random.Random, data: Any) -> Any:
    if isinstance(data, dict) and data and rng.random() < 0.9:
        key = rng.choice(list(data))
        rest = dict(data)
        choice = rng.random()
        if choice < 0.12:
            del rest[key]
        elif choice < 0.2:
            rest[str(odd(rng))[:50]] = rest.pop(key)
        else:
            rest[key] = _once(rng, data[key])
        return rest
    if isinstance(data, list) and data and rng.random() < 0.9:
        place = rng.randrange(len(data))
        choice = rng.random()
        if choice < 0.1:
            return data[:place] + data[place + 1 :]
        if choice < 0.2:
            return [*data[: place + 1], *data[place:]]
        return [*data[:place], _once(rng, data[place]), *data[place + 1 :]]
    return odd(rng)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes cut off, turned over, put in, or repeated."""
    place = rng.randrange(len(data))
    return rng.choice(
        (
            lambda: data[:place],
            lambda: data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :],
            lambda: data[:place] + rng.choice((b"\xff", b"\x00", b"\n", b'"', b"{", b",", b"9" * 30)) + data[place:],
            lambda: data[:place] + data[max(0, place - 40) :],
        )
    )()


def as_json(data: Any) -> bytes:
    # An integer of more digits than Python prints by itself is still a number in JSON.
    return json.dumps(data, default=str).encode()


@dataclass(frozen=True)
class Kind:
    """A kind of foreign input: a sound one, how structures become bytes, and who reads it."""

    sound: bytes
    parse: Callable[[Path], object]
    load: Callable[[bytes], Any] | None = None
    dump: Callable[[Any], bytes] = as_json


def _plan(path: Path) -> object:
    data = read_json(path)
    body = {key: value for key, value in data.items() if key != "sha256"}
    # Sealed again: what is asked here is what an altered plan does behind its seal.
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
    """What a site keeps of a study, with one verdict."""
    return as_json(Published.of(read_study(StudyStore.open(SAMPLE)), "").to_dict() | {"schema": "meshtrial.site/1"})


KINDS = {
    "fortio": Kind((RUN / "fortio.json").read_bytes(), lambda path: read_recorded(path, 10.0), json.loads),
    "access log": Kind(LOG, lambda path: read_recorded(path, 1.0)),
    "table": Kind(TABLE, read_table),
    "run record": Kind((RUN / "run.json").read_bytes(), _run, json.loads),
    "plan": Kind((SAMPLE / "plan.json").read_bytes(), _plan, json.loads),
    "mesh": Kind((paths.MANIFESTS / "meshes" / "istio" / "mesh.yaml").read_bytes(), _mesh, yaml.safe_load, _yaml),
    "cluster file": Kind(yaml.safe_dump(OPTIONS).encode(), _options, yaml.safe_load, _yaml),
    "kubelet summary": Kind(as_json(SUMMARY), _kubelet, json.loads),
    "cAdvisor": Kind(CADVISOR, _cadvisor),
    "site summary": Kind(_summary(), lambda path: read_published(path).day, json.loads),
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


# Every output of another load generator that the tests have, as text or bytes, and as a structure where it is one.
for found in sorted((paths.CHECKOUT / "tests" / "fixtures" / "formats").iterdir()):
    sound = found.read_bytes()
    reader = functools.partial(read_file, sample_floor=0.1)
    if _is_json(sound):
        KINDS[found.name] = Kind(sound, reader, json.loads)
    elif found.suffix == ".json":
        KINDS[found.name] = Kind(sound, reader, _lines, _as_lines)
    else:
        KINDS[found.name] = Kind(sound, reader)
# What a case costs, so that the cases are spread over about the same time.
SHARE = {"fortio": 0.16, "access log": 0.12, "table": 0.1, "run record": 0.16, "plan": 0.04, "mesh": 0.005,
         "cluster file": 0.015, "kubelet summary": 0.2, "cAdvisor": 0.2, "site summary": 0.01}  # fmt: skip


def asked(parse: Callable[[], object], case: str, folder: Path, data: bytes) -> str:
    """What a parser says against the data; anything but its own sentence fails the test, and keeps the input."""
    try:
        parse()
    except MeshtrialError as error:
        return str(error)
    except Exception as error:
        kept = folder / "culprit"
        kept.write_bytes(data)
        raise AssertionError(f"{case}: {type(error).__name__}: {error}; the input is {kept}") from error
    return ""


@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_input_gives_data_or_one_sentence(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = tmp_path / ("mesh.yaml" if name == "mesh" else "input")
    rng = random.Random(f"{name} 1")
    whole = None if kind.load is None else kind.load(kind.sound)
    path.write_bytes(kind.sound)
    if name != "mesh":  # the others of its folder are not beside it
        kind.parse(path)
    refused = 0
    for case in range(max(50, int(CASES * SHARE.get(name, 0.015)))):
        try:
            structured = whole is not None and rng.random() < 0.7
            data = kind.dump(mutated(rng, whole)) if structured else damaged(rng, kind.sound)
        except (ValueError, RecursionError, OverflowError):  # what the writer itself cannot write
            continue
        path.write_bytes(data)
        said = asked(lambda: kind.parse(path), f"case {case} of {name}", tmp_path, data)
        refused += bool(said)
        if "\n" in said or len(said) > 2000:
            pytest.fail(f"case {case}: {said[:300]}")
    assert refused > 0 or name in ("cAdvisor", "kubelet summary")


def test_a_mutated_record_that_is_read_is_also_analysed(tmp_path: Path) -> None:
    rng = random.Random(2)
    whole = json.loads((RUN / "run.json").read_bytes())
    path = tmp_path / "run.json"
    for case in range(max(50, CASES // 1000)):
        try:
            path.write_bytes(as_json(mutated(rng, whole)))
        except (ValueError, RecursionError):
            continue
        asked(lambda: _records(path), f"case {case}", tmp_path, path.read_bytes())


@pytest.mark.parametrize("name", ["verdicts.json", "plan.json", "runs.parquet", "environment.json"])
def test_a_damaged_study_is_told_in_one_sentence(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    folder = tmp_path / "study"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("latency.parquet", "logs"))
    sound = (SAMPLE / name).read_bytes()
    for case in range(max(10, CASES // 5000)):
        data = damaged(rng, sound)
        (folder / name).write_bytes(data)
        asked(lambda: read_study(StudyStore.open(folder)), f"case {case}", tmp_path, data)
