"""Whatever stands in a file, a parser gives data or one clear sentence: mutated inputs of every kind, no traceback.

`HYPOTHESIS_PROFILE=many` tries many more of them, other ones each time (CONTRIBUTING.md).
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from commandline import SAMPLE
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

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

RUN = SAMPLE / "runs" / "01-1-none"
# A sound input is large, and most of what is drawn says where in it the damage is.
LARGE = settings(suppress_health_check=list(HealthCheck))
# A whole study is read for each of these.
FEW = settings(LARGE, max_examples=settings().max_examples // 5)


def nested(depth: int) -> Any:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    return deep


ODD = st.sampled_from(
    (
        *(None, True, False, 0, -1, 1e308, -1e308, 10**30, 10**400, float("nan"), float("inf"), float("-inf"), 2**63),
        *("", " ", "²", "NaN", "-0", "1e999", "\x00", "\uffff", "no" * 5000, "2026-13-45T99:99:99Z", "5h3"),
        *("../../etc/passwd", [], {}, [[]], [None], {"": None}, [1, "a", {}], {"a": {"b": {"c": []}}}),
        *(nested(50), nested(3000)),
    )
)


KEYS = st.sampled_from(("", " ", "²", "NaN", "-0", "1e999", "\x00", "None", "[]", "no" * 25, "../../etc/passwd"))


@st.composite
def mutated(draw: st.DrawFn, sound: Any) -> Any:
    """The same structure with one to three places changed, dropped or doubled; nothing is changed in place."""
    for _ in range(draw(st.integers(1, 3))):
        sound = _once(draw, sound, 0)
    return sound


def _once(draw: st.DrawFn, data: Any, depth: int) -> Any:
    # One in ten stops above the leaves: a whole branch is something else. What is odd is not made odder.
    what = draw(st.integers(0, 9))
    if not isinstance(data, dict | list) or not data or what == 9 or depth > 20:
        return draw(ODD)
    place = draw(st.integers(0, len(data) - 1))
    if isinstance(data, list):
        one = [[], data[place : place + 1] * 2][what] if what < 2 else [_once(draw, data[place], depth + 1)]
        return [*data[:place], *one, *data[place + 1 :]]
    key = list(data)[place]
    rest = dict(data)
    if what == 0:
        del rest[key]
    elif what == 1:  # a key has one value: it stands under another name
        rest[draw(KEYS)] = rest.pop(key)
    else:
        rest[key] = _once(draw, data[key], depth + 1)
    return rest


PUT = (b"\xff", b"\x00", b"\n", b'"', b"{", b",", b"9" * 30)


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Bytes cut off, repeated, put in, or turned over."""
    place, what = draw(st.integers(0, len(sound) - 1)), draw(st.integers(0, 31))
    before, after = sound[:place], sound[place:]
    if what < 8:
        return before
    if what < 16:
        return before + sound[max(0, place - 40) :]
    if what < 24:
        return before + PUT[what % len(PUT)] + after
    return before + bytes([after[0] ^ (1 << (what - 24))]) + after[1:]


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
    return as_json(Published.of(read_study(StudyStore.open(SAMPLE)), "").to_dict() | {"schema": "meshtrial.site/2"})


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


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Damaged bytes of this kind and, where it has a structure, more often a mutated structure written out."""
    kind = KINDS[name]
    if kind.load is None:
        return damaged(kind.sound)
    structures = mutated(kind.load(kind.sound)).map(functools.partial(written, kind.dump))
    return st.one_of(structures, structures, damaged(kind.sound))


def written(dump: Callable[[Any], bytes], data: Any) -> bytes:
    try:
        return dump(data)
    except (ValueError, RecursionError, OverflowError):  # what the writer itself cannot write is no file
        reject()


def said_against(parse: Callable[[], object]) -> str:
    """What a parser says against the data: one sentence, or nothing. Any other error than its own is a failure."""
    try:
        parse()
    except MeshtrialError as refused:
        said = str(refused)
        assert "\n" not in said
        assert len(said) <= 2000
        return said
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all cases of the module."""
    return tmp_path_factory.mktemp("foreign")


@pytest.mark.parametrize("name", KINDS)
def test_a_mutated_input_gives_data_or_one_sentence(name: str, folder: Path) -> None:
    kind = KINDS[name]
    path = folder / ("mesh.yaml" if name == "mesh" else "input")
    path.write_bytes(kind.sound)
    if name != "mesh":  # the others of its folder are not beside it
        kind.parse(path)
    refused = []

    @LARGE
    @given(inputs(name))
    @example(b"")
    @example(b"[" * 5000)  # deeper than Python's own parser goes
    @example(b"9" * 5000)  # more digits than Python reads
    def each(data: bytes) -> None:
        path.write_bytes(data)
        refused.append(bool(said_against(lambda: kind.parse(path))))

    each()
    assert any(refused) or name in ("cAdvisor", "kubelet summary")


@FEW
@given(mutated(json.loads((RUN / "run.json").read_bytes())))
def test_a_mutated_record_that_is_read_is_also_analysed(folder: Path, record: Any) -> None:
    path = folder / "run.json"
    path.write_bytes(written(as_json, record))
    said_against(lambda: _records(path))


@pytest.mark.parametrize("name", ["verdicts.json", "plan.json", "runs.parquet", "environment.json"])
def test_a_damaged_study_is_told_in_one_sentence(name: str, tmp_path: Path) -> None:
    study = tmp_path / "study"
    shutil.copytree(SAMPLE, study, ignore=shutil.ignore_patterns("latency.parquet", "logs"))

    @FEW
    @given(damaged((SAMPLE / name).read_bytes()))
    def each(data: bytes) -> None:
        (study / name).write_bytes(data)
        said_against(lambda: read_study(StudyStore.open(study)))

    each()
