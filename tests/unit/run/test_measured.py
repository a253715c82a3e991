from pathlib import Path

from meshtrial.design.plan import Plan
from meshtrial.errors import TestbedError
from meshtrial.records.store import StudyStore, check_checksums
from meshtrial.run import measured
from meshtrial.run.measured import carry_out


class Broken:
    """A testbed on which nothing comes up."""

    name = "local"

    def before_run(self) -> dict[str, float]:
        return {}

    def make_ready(self, *_: object) -> None:
        pass

    def deploy(self, *_: object) -> None:
        raise TestbedError("pod a: CrashLoopBackOff", {"failed-x-events.txt": "everything\nthat happened\n"})


def test_the_evidence_of_a_failure_lies_beside_the_runs_logs(tmp_path: Path, small_plan: Plan):
    store = StudyStore.create(tmp_path, small_plan, {})
    (record,) = carry_out(store, Broken(), small_plan.runs[:1], 1)  # type: ignore[arg-type]
    assert record.reasons == ("pod a: CrashLoopBackOff",)
    folder = store.folder(record.run_id, 1)
    assert (folder / "logs" / "failed-x-events.txt").read_text() == "everything\nthat happened\n"
    assert check_checksums(folder) == []


def test_a_long_log_keeps_both_of_its_ends():
    short = "x" * 1_000_000
    assert measured.bounded(short) == short
    long = measured.bounded("a" + "x" * 3_000_000 + "z")
    assert long.startswith("ax")
    assert long.endswith("xz")
    assert len(long) < 1_000_100
    assert "\n... 2000002 characters are left out here ...\n" in long
