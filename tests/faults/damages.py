"""Kinds of damage to a finished study's files, and the commands that must detect each.

`verify` reports every kind. A reader reports what it cannot read: `status` in its line, a resumed study by replacing or
refusing a run, `report` by refusing. `report` makes derived files again, and they are whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from commandline import meshtrial
from faults.study import GIVEN
from local.studies import PATIENT, study_of, without_twin

from meshtrial.design.plan import digest, make_plan
from meshtrial.errors import MeshtrialError
from meshtrial.inference import analyse, read_study
from meshtrial.records import packed
from meshtrial.records.mechanism import ComponentCalls, Mechanism, write_mechanism
from meshtrial.records.store import CHECKSUMS, StudyStore, read_json, seal, write_checksums, write_json
from meshtrial.run.runner import execute
from meshtrial.run.trial import Trial, environment
from meshtrial.testbed.local.testbed import LocalTestbed

Do = Callable[[Path], object]
ALL, VERIFY = ("verify", "pack", "status", "resume", "report"), ("verify", "pack")


@dataclass(frozen=True)
class Damage:
    """One kind of damage to a study's folder, and the commands that must report it."""

    do: Do
    told: tuple[str, ...] = VERIFY
    mended: bool = False  # by a report


def run_of(study: Path, place: int = 0) -> Path:
    """The folder of a run, by its place in the plan."""
    store = StudyStore.open(study)
    return store.folder(store.plan.runs[place].run_id, 1)


def one_byte(path: Path) -> None:
    """Replace a letter or digit in the middle, or the text given."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    place = next((at for at in range(middle, len(data)) if chr(data[at]).isalpha()), middle)
    data[place] ^= 1
    path.write_bytes(data)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone"))


WAYS: dict[str, Do] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "with another letter": one_byte,
    "written over": lambda path: path.write_bytes(b"\xff\xfe\x00" * 100),
    "removed": Path.unlink,
    "as a folder": as_folder,
    "as a link to nothing": as_link,
}
RUN = (
    "run.json",
    "fortio.json",
    "latency.parquet",
    "series.parquet",
    "resources.parquet",
    "logs/fortio.txt",
    CHECKSUMS,
)
STUDY = ("plan.json", "environment.json", CHECKSUMS, "mechanism.json")
DERIVED = ("stopping.json", "verdicts.json", "verdicts.parquet", "runs.parquet")


def _bytes() -> dict[str, Damage]:
    found = {}
    for way, do in WAYS.items():
        # Another letter may still be readable.
        unreadable = way != "with another letter"
        for name in STUDY:
            told = ALL if name == "plan.json" or (unreadable and name == "environment.json") else VERIFY
            found[f"{name} {way}"] = Damage(lambda study, do=do, name=name: do(study / name), told)
        for name in DERIVED:
            # Nothing can be written in the place of a folder.
            held = way == "as a folder"
            told = (*VERIFY, "resume", "report") if held else VERIFY
            if way == "with another letter" and name.endswith(".parquet"):
                told = ()  # the letter may not affect the table
            found[f"{name} {way}"] = Damage(lambda study, do=do, name=name: do(study / name), told, not held)
        for name in RUN:
            told = ALL if unreadable and name == "run.json" else VERIFY
            found[f"a run's {name} {way}"] = Damage(lambda study, do=do, name=name: do(run_of(study) / name), told)
    return found


def changed(name: str, change: Callable[[Any], object]) -> Do:
    """Change a JSON file of the study in place."""

    def do(study: Path) -> None:
        data = json.loads((study / name).read_text())
        change(data)
        (study / name).write_text(json.dumps(data))

    return do


def record(change: Callable[[dict[str, Any]], object], place: int = 0) -> Do:
    """Change a run's record, as somebody would who recomputes sums and verdicts."""

    def do(study: Path) -> None:
        folder = run_of(study, place)
        data = read_json(folder / "run.json")
        change(data)
        write_json(folder / "run.json", data)
        write_checksums(folder)
        with suppress(MeshtrialError):
            analyse(StudyStore.open(study))

    return do


def times(names: str, factor: float) -> Callable[[dict[str, Any]], object]:
    def change(data: dict[str, Any]) -> None:
        values = data["responses"]
        chosen = {name: factor * value for name, value in values.items() if names in name}
        assert chosen
        values |= chosen

    return change


def frame(name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Do:
    return lambda study: change(pl.read_parquet(study / name)).write_parquet(study / name)


def requests(change: Callable[[pl.DataFrame], pl.DataFrame], again: bool = False) -> Do:
    def do(study: Path) -> None:
        path = run_of(study) / "latency.parquet"
        change(pl.read_parquet(path)).write_parquet(path)
        if again:
            write_checksums(path.parent)

    return do


def swapped(study: Path) -> None:
    """Swap the treatments of a block's two runs, and recompute sums and verdicts."""
    names = [run.treatment for run in StudyStore.open(study).plan.runs[:2]]
    for place, name in enumerate(reversed(names)):
        record(lambda data, name=name: data.update(treatment=name), place)(study)


def another_plan(change: Callable[[dict[str, Any]], object]) -> Do:
    def do(study: Path) -> None:
        data = read_json(study / "plan.json")
        change(data)
        write_json(study / "plan.json", data | {"sha256": digest({k: v for k, v in data.items() if k != "sha256"})})

    return do


def without_its_digest(name: str) -> Do:
    def do(study: Path) -> None:
        (run_of(study) / name).unlink()
        write_checksums(run_of(study))

    return do


def less_a_line(study: Path) -> None:
    path = run_of(study) / CHECKSUMS
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def of_another_study(study: Path) -> None:
    changed("environment.json", lambda data: data.update(plan_sha256="0" * 64))(study)
    seal(study)


CONTENT: dict[str, Damage] = {
    "no runs any more": Damage(lambda study: shutil.rmtree(study / "runs"), ALL),
    "a run less": Damage(lambda study: shutil.rmtree(run_of(study)), (*VERIFY, "status", "resume")),
    "a run twice": Damage(lambda study: shutil.copytree(run_of(study), study / "runs" / "99-9-none")),
    "a run under another name": Damage(lambda study: run_of(study).rename(study / "runs" / "99-9-none")),
    "two runs with each other's folder": Damage(lambda study: _exchange(run_of(study), run_of(study, 1))),
    "a run of another plan": Damage(record(lambda data: data.update(plan_sha256="0" * 64)), ALL),
    "a run that is not planned": Damage(record(lambda data: data.update(run_id="98-1-none"))),
    "a folder more among the runs": Damage(lambda study: (study / "runs" / "more").mkdir(), tuple({*ALL} - {"pack"})),
    "a file more among the runs": Damage(lambda study: (study / "runs" / "more").touch()),
    "a file more in a run": Damage(lambda study: (run_of(study) / "more").touch()),
    "a line less among a run's sums": Damage(less_a_line),
    "requests gone with their sum": Damage(without_its_digest("latency.parquet")),
    "resources gone with their sum": Damage(without_its_digest("resources.parquet")),
    "requests slower": Damage(requests(lambda table: table.with_columns(latency_s=pl.col("latency_s") * 2))),
    "requests slower, sums made again": Damage(
        requests(lambda table: table.with_columns(latency_s=pl.col("latency_s") * 2), again=True)
    ),
    "half of the requests, sums made again": Damage(requests(lambda table: table.head(table.height // 2), again=True)),
    "no requests, sums made again": Damage(requests(lambda table: table.clear(), again=True)),
    "latencies times five, all made again": Damage(record(times("latency_p", 5))),
    "mean latency times five, all made again": Damage(record(times("latency_mean", 5))),
    "CPU times five, all made again": Damage(record(times("path_cpu_s_per_request", 5))),
    "treatments exchanged, all made again": Damage(swapped),
    "another block, all made again": Damage(record(lambda data: data.update(repetition=2))),
    "a failed proof of a valid run, all made again": Damage(
        record(lambda data: data["proofs"][0].update(passed=False))
    ),
    "a failed gate of a valid run, all made again": Damage(record(lambda data: data["gates"][0].update(passed=False))),
    "a reason of a valid run, all made again": Damage(record(lambda data: data.update(reasons=["it was slow"]))),
    "a run put out for no reason, all made again": Damage(record(lambda data: data.update(valid=False))),
    "another margin": Damage(changed("plan.json", lambda data: data["study"]["margins"].clear()), ALL),
    "another plan, sealed": Damage(
        another_plan(lambda data: data["study"].update(seed=data["study"]["seed"] + 1)), ALL
    ),
    "another machine": Damage(changed("environment.json", lambda data: data.update(backend="kubernetes"))),
    "the environment of another study": Damage(of_another_study),
    "another mechanism": Damage(changed("mechanism.json", lambda data: data["treatments"][0].update(traced=1))),
    "another share of the error rate": Damage(changed("stopping.json", lambda d: d.update(alpha=0.5)), mended=True),
    "another end": Damage(changed("stopping.json", lambda d: d.update(stop=not d["stop"])), mended=True),
    "another verdict": Damage(changed("verdicts.json", lambda rows: rows[0].update(verdict="faster")), mended=True),
    "another p": Damage(changed("verdicts.json", lambda rows: rows[0].update(p=1e-9)), mended=True),
    "a verdict less": Damage(changed("verdicts.json", list.pop), mended=True),
    "a verdict twice": Damage(changed("verdicts.json", lambda rows: rows.append(rows[0])), mended=True),
    "no verdict": Damage(changed("verdicts.json", list.clear), mended=True),
    "another ratio in Parquet": Damage(
        frame("verdicts.parquet", lambda table: table.with_columns(ratio=pl.lit(1.5))), mended=True
    ),
    "a verdict less in Parquet": Damage(frame("verdicts.parquet", lambda table: table.head(-1)), mended=True),
    "a column less in Parquet": Damage(frame("verdicts.parquet", lambda table: table.drop("p")), mended=True),
    "another value of a run": Damage(
        frame("runs.parquet", lambda table: table.with_columns(value=pl.col("value") * 1.001)), mended=True
    ),
    "a run that takes no part": Damage(
        frame("runs.parquet", lambda table: table.with_columns(included=pl.lit(False))), mended=True
    ),
    "a row less of a run": Damage(frame("runs.parquet", lambda table: table.head(-1)), mended=True),
}
DAMAGES = _bytes() | CONTENT
# The kinds that `make test` tries, once each.
CHOSEN = (
    *("plan.json removed", "environment.json with another letter", f"{CHECKSUMS} removed", "verdicts.json cut in half"),
    *("a run's run.json emptied", "a run's latency.parquet written over", f"a run's {CHECKSUMS} written over"),
    *("a run twice", "requests gone with their sum", "no requests, sums made again", "another mechanism"),
    *("CPU times five, all made again", "treatments exchanged, all made again"),
)


def _exchange(one: Path, other: Path) -> None:
    aside = one.with_name(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def finished(root: Path) -> Path:
    """A short real study, whole."""
    given = GIVEN | {"seed": 5, "duration_s": 1, "warmup_s": 0.2}
    study = without_twin(study_of("ambient_vs_no_mesh", given, PATIENT, blocks=2))
    plan, testbed = make_plan(study), LocalTestbed(study.options)
    store = StudyStore.create(root, plan, environment(plan, testbed))
    execute(store, testbed, lambda line: None)
    counted = ComponentCalls("app", "app", {"read": 7}, None)
    write_mechanism(store.path, (Mechanism("none", plan.study.loads[0].label, 100, 100, (counted,)),))
    analyse(store)
    return store.path


def tried(name: str, study: Path, root: Path) -> None:
    """Damage a copy below the root of all studies: the named commands report it, and none prints a traceback."""
    damage = DAMAGES[name]
    for who, ask in ASKED.items():
        copy = root / study.parent.name / study.name
        shutil.copytree(study, copy, symlinks=True)
        damage.do(copy)
        said = ask(copy)
        assert "Traceback" not in said
        assert said or who not in damage.told, f"{who} takes it for sound"
        if damage.mended and who == "report":
            assert _verify(copy) == ""
        shutil.rmtree(root)


def _pack(study: Path) -> str:
    """Pack the damaged study, and verify the file if it can be packed."""
    file = study.with_name(study.name + packed.SUFFIX)
    code, _, said = meshtrial("pack", study, "--out", file)
    if not code:
        code, _, said = meshtrial("verify", file)
    assert code in (0, 1), said
    return said


def _verify(study: Path) -> str:
    code, _, said = meshtrial("verify", study)
    assert code in (0, 1), said
    assert bool(said) == bool(code)
    return said


def _status(study: Path) -> str:
    code, said, _ = meshtrial("status")
    assert code == 0
    assert len(said.splitlines()) == 1
    return "" if "  whole  " in said and "damaged" not in said else said


def _resume(study: Path) -> str:
    lines: list[str] = []
    try:
        Trial(study.parent.name, {"study_dir": str(study)}).run(lines.append)
    except MeshtrialError as error:
        return str(error)
    # Every lost file exists again.
    data = read_study(StudyStore.open(study))
    assert {run.run_id for run in data.runs} >= {run.run_id for run in data.plan.runs}
    return "\n".join(line for line in lines if "moved to" in line or "runs in" in line)


def _report(study: Path) -> str:
    """Run the command without its notebook."""
    try:
        analyse(StudyStore.open(study))
        Trial(study.parent.name, {"study_dir": str(study), "measure": False}).run(lambda line: None)
    except MeshtrialError as error:
        return str(error)
    return ""


ASKED: dict[str, Callable[[Path], str]] = {
    "verify": _verify,
    "pack": _pack,
    "status": _status,
    "resume": _resume,
    "report": _report,
}
