"""Values read from a file have the declared types, or are refused with place and value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from refused import refused

from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import of_schema, read, read_yaml


@dataclass(frozen=True)
class Inner:
    count: int
    size: float | None = None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: tuple[Inner, ...] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)
    more: Any = None


def test_lists_pass_for_tuples_and_whole_numbers_for_fractions():
    made = read(Outer, {"name": "a", "inner": [{"count": 1, "size": 2}], "sizes": {"x": 1}, "more": [None]})
    assert made == Outer("a", (Inner(1, 2.0),), {"x": 1.0}, [None])
    assert type(made.inner[0].size) is float


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    "data",
    [
        {},
        None,
        {"name": 1},
        {"name": "a", "names": 1},
        {"name": "a", "inner": None},
        {"name": "a", "inner": [{"count": 1}, {}]},
        {"name": "a", "inner": [{"count": True}]},
        {"name": "a", "inner": [{"count": 1.0}]},
        {"name": "a", "inner": [{"count": 2**63}]},
        {"name": "a", "inner": [{"count": 1, "size": "x"}]},
        {"name": "a", "inner": [{"count": 1, "size": float("nan")}]},
        {"name": "a", "inner": [{"count": 1, "of": 2}]},
        {"name": "a", "sizes": {"x": None}},
        {"name": "a", "more": {"x": [float("inf")]}},
        {"name": "a", "more": ENDLESS},
    ],
)
def test_what_is_not_as_declared_is_refused_with_its_place_and_its_value(data):
    with refused(UsageError):
        read(Outer, data)


def test_a_part_is_called_as_its_reader_says():
    with refused(UsageError):
        read(tuple[Inner, ...], [{}], "parts")


def test_a_document_has_the_schema_of_this_version():
    assert of_schema({"schema": "a/1", "x": 1}, "a/1", "f.json") == {"x": 1}
    with refused(RecordError):
        of_schema({"schema": "a/2"}, "a/1", "f.json")


@pytest.mark.parametrize(
    "content",
    [None, b"a: [", b"a:\n\tb: 1", b"\xff\xff", b"- a", b"", b"1: 2", b"on: 2"],
    ids=["missing", "cut", "a tab", "bytes", "a list", "nothing", "a number for a name", "a truth for a name"],
)
def test_a_yaml_file_that_is_no_mapping_is_refused_by_what_it_is_called(content, tmp_path):
    file = tmp_path / "given.yaml"
    if content is not None:
        file.write_bytes(content)
    with refused(UsageError):
        read_yaml(file, "cluster_file = 'given.yaml'")
    for form in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le"):
        file.write_text("a: {b: müßig}", form)
        assert read_yaml(file, "it") == {"a": {"b": "müßig"}}
