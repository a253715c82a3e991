"""fortio results with a median that a hand can check, and the command line as a test calls it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from commandline import meshtrial
from refused import as_reviewed


def result(
    p50_ms: float, *, bucket_ms: float = 0.01, minute: int = 0, count: int = 400, **changes: Any
) -> dict[str, Any]:
    """Requests of 4 s, half of them in the bucket that ends at ``p50_ms``: the median is that edge, exactly."""
    edges = [(p50_ms - bucket_ms) / 1e3, p50_ms / 1e3, (p50_ms + bucket_ms) / 1e3]
    data = [
        {"Start": edges[0], "End": edges[1], "Percent": 50, "Count": count // 2},
        {"Start": edges[1], "End": edges[2], "Percent": 100, "Count": count - count // 2},
    ]
    histogram = {"Count": count, "Min": edges[0], "Max": edges[2], "Sum": 0.4 * p50_ms, "Avg": edges[1], "Data": data}
    return {
        "RunType": "HTTP",
        "Labels": "",
        "StartTime": f"2026-11-21T02:{minute:02d}:00Z",
        "RequestedQPS": "100",
        "RequestedDuration": "4s",
        "ActualQPS": count / 4,
        "ActualDuration": 4_000_000_000,
        "NumThreads": 4,
        "Version": "1.68.1",
        "DurationHistogram": histogram,
        "RetCodes": {"200": 400},
        "DisableFastClient": False,
        "H2": False,
        "DisableKeepAlive": False,
    } | changes


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str
    record: dict[str, Any]

    @property
    def flat(self) -> str:
        """Return the output without its line breaks."""
        return " ".join(self.out.split())

    def warned(self, code: str) -> str:
        """Return the record's warnings of this code, one per line; empty if there are none."""
        told = [
            *self.record.get("warnings", ()),
            *(w for row in self.record.get("verdicts", ()) for w in row["warnings"]),
        ]
        return "\n".join(dict.fromkeys(one["message"] for one in told if one["code"] == code))


class Bench:
    """A folder with results, and the command run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, data: Any) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    def treatment(self, name: str, medians_ms: Sequence[float], start: int = 0, step: int = 2, **changes: Any) -> None:
        for k, p50 in enumerate(medians_ms, start=1):
            self.write(f"{name}/run-{k}.json", result(p50, minute=start + step * k, **changes))

    def four(self, start: int = 1, **changes: Any) -> None:
        """Write four completely separated runs per side, with the given changes in the second side."""
        self.treatment("none", [0.80, 0.81, 0.82, 0.83])
        self.treatment("istio", [1.00, 1.01, 1.02, 1.03], start=start, **changes)

    def compare(self, *arguments: str) -> Answer:
        if "--json" not in arguments:
            arguments = (*arguments, "--json", "record.json")
        record = self.folder / arguments[arguments.index("--json") + 1]
        answer = self._call("compare", *arguments)
        return answer if answer.code else replace(answer, record=json.loads(record.read_text()))

    def refused(self, *arguments: str) -> str:
        """Return the error of bad usage; nothing was printed before."""
        answer = self.compare(*arguments)
        assert (answer.code, answer.out) == (2, "")
        as_reviewed(*f"exit {answer.code}: {answer.err}".splitlines())
        return answer.err

    def plan(self, *arguments: str) -> Answer:
        return self._call("plan", *arguments)

    def _call(self, *arguments: str) -> Answer:
        code, out, err = meshtrial(*arguments)
        # The one phrase that no verdict may contain.
        assert "no difference" not in out.lower()
        return Answer(code, out, err, {})

    def read(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


@pytest.fixture
def six(bench: Bench) -> Bench:
    """Write six runs per side, interleaved in time and completely separated."""
    bench.treatment("none", [0.80, 0.81, 0.82, 0.83, 0.84, 0.85])
    bench.treatment("istio", [1.00, 1.01, 1.02, 1.03, 1.04, 1.05], start=1)
    return bench


@pytest.fixture
def make_result() -> Callable[..., dict[str, Any]]:
    return result
