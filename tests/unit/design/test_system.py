"""System files: what they mean, and one clear line for each mistake."""

from pathlib import Path

import pytest

from meshtrial.design.system import Call, CallStep, Parallel, Service, System, calls_of, read_system
from meshtrial.errors import UsageError

SHOP = """
services:
  cart: {replicas: 2, cpu_us: 350}
  ingress: {outside: true}
calls:
  - {caller: ingress, callee: frontend, rps: 200}
  - {caller: frontend, callee: cart, rps: 100, protocol: grpc, connections: 4, request_bytes: 200, response_bytes: 1200}
  - {caller: cart, callee: redis, rps: 90, protocol: tcp}
  - {caller: cart, callee: prices, rps: 90.5}
paths:
  view-cart: [ingress>frontend, frontend > cart, {parallel: [[cart>redis], [cart>prices]]}]
"""


def read(folder: Path, text: str, name: str = "shop.yaml") -> System:
    """Return the system of a file with this text."""
    path = folder / name
    path.write_text(text)
    return read_system(path)


def test_a_file_gives_services_calls_and_paths(tmp_path: Path) -> None:
    system = read(tmp_path, SHOP)
    assert system.services["cart"] == Service("cart", 2, 350)
    assert system.services["ingress"].outside
    assert system.services["redis"] == Service("redis")  # named in calls only
    assert system.by_pair["frontend", "cart"] == Call("frontend", "cart", 100, "grpc", 4, 200, 1200)
    both = Parallel(((CallStep("cart", "redis"),), (CallStep("cart", "prices"),)))
    assert system.paths["view-cart"] == (CallStep("ingress", "frontend"), CallStep("frontend", "cart"), both)
    assert list(calls_of(system.paths["view-cart"]))[2:] == [("cart", "redis"), ("cart", "prices")]


def test_what_is_written_is_read_as_the_same_system(tmp_path: Path) -> None:
    system = read(tmp_path, SHOP)
    assert read(tmp_path, system.to_yaml()) == system


def test_a_table_of_calls_is_a_system(tmp_path: Path) -> None:
    table = "caller, callee, rps, protocol, connections\na, b, 10.5, grpc, 4\nb, c, 3,,\n"
    system = read(tmp_path, table, "calls.csv")
    assert system.calls == (Call("a", "b", 10.5, "grpc", 4), Call("b", "c", 3))


AB = "calls: [{caller: a, callee: b, rps: 1}, {caller: b, callee: c, rps: 1}, {caller: c, callee: a, rps: 1}]\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("calls: []", "calls is empty"),
        ("services: {}", "no calls"),
        ("calls: [{caller: a, callee: b}]", r"calls\[0\] has no rps"),
        ("calls: [{caller: a, callee: b, rps: 0}]", r"calls\[0\].rps is 0, not more than 0"),
        ("calls: [{caller: a, callee: b, rps: 100rps}]", r"calls\[0\].rps is '100rps', .*without a unit"),
        ("calls: [{caller: a, callee: b, rps: .inf}]", r"calls\[0\]"),
        ("calls: [{caller: a, callee: b, rps: 1, protocol: udp}]", r"calls\[0\].*'http1' or "),
        ("calls: [{caller: a, callee: b, rps: 1, rate: 1}]", r"calls\[0\].*'rate' is not known"),
        ("calls: [{caller: a, callee: b, rps: 1}, {caller: a, callee: b, rps: 2}]", r"calls\[1\].*already given"),
        ("calls: [{caller: a>b, callee: c, rps: 1}]", "must be a name"),
        (AB + "services: {x: {replicas: 2}}", "services.x"),
        (AB + "services: {a: {replicas: 0}}", "services.a.replicas is 0"),
        (AB + "services: {a: 2}", "services"),
        (AB + "paths: {p: []}", "paths.p"),
        (AB + "paths: {p: [a-b]}", r"paths.p\[0\] is 'a-b'"),
        (AB + "paths: {p: [a>b, {parallel: [b>c]}]}", r"paths.p\[1\].parallel\[0\] is 'b>c'"),
        (AB + "paths: {p: [a>x]}", "'x' is in no call"),
        (AB + "paths: {p: [a>c]}", "a>c is no call"),
        (AB + "paths: {p: [a>b, b>c, c>a]}", "form a cycle"),
        (AB + "paths: {p: [a>b, c>a, b>c]}", "form a cycle"),
        (
            "calls: [{caller: a, callee: b, rps: 1}, {caller: c, callee: d, rps: 1}]\npaths: {p: [a>b, c>d]}",
            "begins at a and at c",
        ),
        ("[1, 2]", "must contain a mapping"),
        ("calls: [", "is not YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_place(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as refused:
        read(tmp_path, text)
    message = str(refused.value)
    assert message.startswith(str(tmp_path / "shop.yaml"))
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("caller,rps\na,1\n", "no column callee"),
        ("", "no column caller"),
        ("caller,callee,rps\n", "calls is empty"),
        ("caller,callee,rps\na,b,100rps\n", "line 2.rps is '100rps'.*without a unit"),
        ("caller,callee,rps\na,b,nan\n", "line 2"),
        ("caller,callee,rps\na,b,\n", "line 2 has no rps"),
        ("caller,callee,rps\na,b\n", "line 2.*3 values"),
        ("caller,callee,rps\na,b,1,5\n", "line 2.*3 values"),
        ("caller,callee,rps\na,b,1\na,b,1\n", "already given"),
    ],
)
def test_a_mistake_in_a_table_names_the_line(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        read(tmp_path, text, "calls.csv")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    for name in ("none.csv", "none.yaml"):
        with pytest.raises(UsageError, match=rf"{name}: cannot be read"):
            read_system(tmp_path / name)
