"""A simulated testbed with its deployments; a test overrides the parts that it is about."""

from meshtrial.load.generators import Target
from meshtrial.records.schema import Proof
from meshtrial.testbed.base import Facts


class Deployment:
    target, versions = Target("http://127.0.0.1:8080/echo"), {"fortio": "1.68.1"}

    def prove(self, phase: str, requests: int) -> tuple[Proof, ...]:
        return (Proof("made up", phase, True, "", ""),)

    def nothing(self, *_: object) -> dict[str, object]:
        return {}

    snapshot = sample = keep_warm = collect_logs = close = nothing

    def facts(self) -> Facts:
        return Facts()


class Testbed:
    name = "local"

    def nothing(self, *_: object) -> dict[str, object]:
        return {}

    before_run = make_ready = nothing

    def used_between(self) -> None:
        return None

    def generator_cpus(self) -> float:
        return 2.0

    def together(self, treatments):
        return [list(treatments)]
