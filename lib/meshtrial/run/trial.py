"""A study from parameters to verdicts: a sealed plan, runs, analysed records. ``meshtrial.run`` is what calls this."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshtrial import paths
from meshtrial.design.foreseen import Limit, foreseen
from meshtrial.design.parameters import given_in_notebook, with_design
from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.sealing import at_hand, local_of, without_folders
from meshtrial.design.studies import study_module
from meshtrial.design.studies.common import UNSEALED
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.inference import analyse
from meshtrial.inference.sequential import decide, ended, finished_blocks
from meshtrial.records import mechanism, parts
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run import duration, probe, quiet
from meshtrial.run.held import unheld_before
from meshtrial.run.progress import ProgressCallback, shown
from meshtrial.run.provenance import environment
from meshtrial.run.runner import execute
from meshtrial.signals import interruptible
from meshtrial.testbed.base import Testbed, Watch

HANDOFF = "MESHTRIAL_HANDOFF"
# Beside that file: what the machine did when the command began, so that a kernel's start is part of the first watch.
LOOK = "look.json"


class Trial:
    """One study, from checked parameters to analysed records.

    Its name is its notebook's too; unknown parameters and bad values are a UsageError. The plan is sealed; where a
    recorded study is continued, it is that of its folder.
    """

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        module = study_module(name)
        given = with_design(given)
        settings = module.SETTINGS.read(given)
        self.parameters = module.SETTINGS.plain(settings)
        self._store: StudyStore | None = None
        self._part = parts.Part.parse(settings.part) if settings.part else None
        self._aside: list[str] = []
        folder = settings.study_dir
        if not folder and not settings.run_missing:
            raise UsageError("run_missing = False: needs study_dir, the recorded study to report")
        if folder:
            self._store = StudyStore.open(Path(folder).expanduser().resolve())
            self.plan: Plan = self._store.plan
            _must_agree(self._store, name, given, self.parameters, folder)
            recorded = parts.part_of(self.plan, self._store.environment)
            if self._part is not None and self._part != recorded:
                held = f"part {recorded}" if recorded else "all blocks"
                raise UsageError(f"part = {self._part}: {folder} holds {held}")
            if settings.run_missing:
                self._aside = [
                    f"{why.partition(';')[0]}: set aside as {paths.display_path(where)}, and made again"
                    for where, why in self._store.set_aside().items()
                ]
        else:
            self.plan = make_plan(module.build(settings))
            _check_part(self.plan, self._part)

    @classmethod
    def from_notebook(cls, name: str) -> Trial:
        """Take the parameters from the notebook that calls this."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if shell is None:
            raise UsageError(
                f"run_notebook({name!r}): is for a cell of a notebook; elsewhere use run({name!r}, rps=500, ...)"
            )
        namespace = shell.user_ns
        return cls(name, given_in_notebook(namespace["In"], namespace, study_module(name).SETTINGS))

    def announced(self) -> str:
        """What was set aside, how much there is to do and how long that takes; empty where nothing is measured."""
        if not self._measures:
            return ""
        plan, blocks = self.plan, self._blocks
        runs = [run for run in plan.runs if run.repetition in blocks]
        done = set() if self._store is None else {record.run_id for record in self._store.records()}
        waiting = [run for run in runs if run.run_id not in done]
        remaining_s = duration.remaining_s(plan, waiting, self._overhead_s())
        count = f"{len(waiting)} of {len(runs)} runs" if done else f"{len(runs)} runs"
        planned = f"{count}, {len(plan.study.treatments)} treatments in {len(blocks)} blocks"
        return "\n".join([*self._aside, f"{plan.study.name}: {planned}; {duration.said(plan, remaining_s)}"])

    def limits(self) -> tuple[Limit, ...]:
        """What this plan cannot answer, by itself and by what was recorded here the last time."""
        return foreseen(self.plan.study, unheld_before(self.plan.study, paths.studies_root()))

    def run(self, tell: ProgressCallback | None = None) -> StudyData:
        """Execute what is not recorded yet, then analyse everything that is.

        Without somebody to ``tell`` lines to, they are shown as suits the place (see :mod:`meshtrial.run.progress`).
        MissingToolError, before anything is written, when the testbed cannot run this study.
        """
        if tell is None:
            with shown() as suitably:
                return self.run(suitably)
        for line in self._aside:
            tell(line)
        store = self._store
        if store is not None and not self._measures:
            tell(f"{paths.display_path(store.path)}: nothing is run, the report is made from what is recorded")
        else:
            local = {} if store is None else store.here
            local |= local_of(self.parameters)
            study = replace(self.plan.study, options=at_hand(self.plan.study.options, local))
            testbed = make_testbed(replace(self.plan, study=study), {} if store is None else store.environment)
            try:
                watch = self._watch(testbed)
                store = self._run(testbed, watch, tell, local)
            except BaseException:
                self._print_resume_hint(tell)
                raise
            finally:
                testbed.close()
        self._publish_study_dir(store)
        return analyse(store)

    def _watch(self, testbed: Testbed) -> Watch | None:
        """Begin to watch other programs where a check holds runs against them, and the user does not forbid it."""
        if self.plan.study.gates.foreign_load is None or not quiet.patience_s():
            return None
        begun = os.environ.get(HANDOFF)
        try:
            return testbed.watch(Path(begun).with_name(LOOK) if begun else None)
        except FileNotFoundError:  # a machine without /proc, which preflight refuses in its own words
            return None

    def _run(
        self, testbed: Testbed, watch: Watch | None, tell: ProgressCallback, local: Mapping[str, str]
    ) -> StudyStore:
        if self._store is not None:
            with self._store.locked():
                testbed.recover(self.plan.study, tell)
        problems = [*testbed.preflight(self.plan.study), *self.probe_problems()]
        if problems:
            raise MissingToolError("; ".join(problems))
        overhead_s, limits = self._overhead_s(), self.limits()
        if self._store is None:
            described = environment(self.plan, testbed)
            if self._part is not None:
                described["part"] = parts.described(self._part, self.plan)
            self._store = StudyStore.create(paths.studies_root(), self.plan, described)
        store = self._store
        store.write_here(local)
        self._publish_study_dir(store)
        tell(f"study {paths.display_path(store.path)}, plan {self.plan.sha256[:12]}, {len(store.runs_here())} runs")
        for limit in limits:
            tell(limit.sentence)

        def enough(records: Sequence[RunRecord], blocks: int) -> bool:
            decision = decide(self.plan, records, blocks)
            if decision.stop:
                tell(f"stopped by the plan's rule: {decision.reason}")
            return decision.stop

        with interruptible():
            execute(store, testbed, tell, enough, overhead_s, watch)
            if not self._whole(store) and complete(store):
                mechanism.write_mechanism(store.path, probe.probe_study(self.plan, tell))
        return store

    @property
    def _measures(self) -> bool:
        return self._store is None or (bool(self.parameters["run_missing"]) and not self._whole(self._store))

    @property
    def _blocks(self) -> Collection[int]:
        """The blocks of the plan that are run here."""
        if self._store is not None:
            return self._store.blocks
        total = self.plan.study.blocks
        return self._part.blocks(total) if self._part is not None else range(1, total + 1)

    def _overhead_s(self) -> float:
        records = () if self._store is None else self._store.records()
        return duration.expected_overhead_s(self.plan, records, paths.studies_root())

    def _print_resume_hint(self, tell: ProgressCallback) -> None:
        # Whoever started the notebook for us says it too, and where it is seen first.
        if self._store is not None and HANDOFF not in os.environ:
            tell(f"{kept(self._store)}; {resume_command(self._store)} goes on")

    def _whole(self, store: StudyStore) -> bool:
        """Whether nothing is left to run, and nothing to count afterwards."""
        return complete(store) and (not self._probed or (store.path / mechanism.FILE).exists())

    @property
    def _probed(self) -> bool:
        return bool(self.plan.study.parameters.get("probe", False))

    def probe_problems(self) -> list[str]:
        """What stands in the way of counting system calls, where that is asked for."""
        if not self._probed:
            return []
        if self.plan.study.backend != "local":
            raise UsageError("probe = True: strace watches processes of this machine; leave it out on a cluster")
        try:
            probe.require_strace()
        except MissingToolError as error:
            return [str(error)]
        return []

    def _publish_study_dir(self, store: StudyStore) -> None:
        # Whoever started this notebook learns where the records are, also when it is interrupted later.
        where = os.environ.get(HANDOFF)
        if where:
            Path(where).write_text(json.dumps({"study_dir": str(store.path)}))


def complete(store: StudyStore, records: Sequence[RunRecord] | None = None) -> bool:
    """Whether nothing is left to run here: the plan or this part of it is through, or its stopping rule ended it."""
    records = store.records() if records is None else records
    return finished_blocks(store.plan, records).issuperset(store.blocks) or ended(store.plan, records)


def _check_part(plan: Plan, part: parts.Part | None) -> None:
    """Refuse a part that the plan cannot be divided into."""
    if part is None:
        return
    part.blocks(plan.study.blocks)
    if plan.study.may_stop_early:
        raise UsageError(f"part = {part}: a study that may stop early cannot be divided; take stopping = fixed")


def kept(store: StudyStore) -> str:
    """How much of a study that broke off is recorded, and where."""
    records = store.records()
    runs = len({record.run_id for record in records})
    blocks = f"{len(finished_blocks(store.plan, records))} of {len(store.blocks)} blocks"
    return f"{runs} of {len(store.runs_here())} runs are recorded, {blocks}, in {paths.display_path(store.path)}"


def resume_command(store: StudyStore) -> str:
    """The command that makes what is missing of a study."""
    return f"meshtrial run {store.plan.study.name} -p study_dir={paths.word(store.path)}"


def make_testbed(plan: Plan, recorded: Mapping[str, Any]) -> Testbed:
    """The backend that the plan names; ``recorded`` is the environment of a study that goes on, empty for a new one."""
    if plan.study.backend == "kubernetes":
        from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed

        began = recorded.get("testbed")
        owner = began.get("owner") if isinstance(began, Mapping) else None
        known = isinstance(owner, str) and re.fullmatch("[0-9a-f]{8}", owner)
        return KubernetesTestbed(plan.study.options, str(owner) if known else "")
    from meshtrial.testbed.local.testbed import LocalTestbed

    return LocalTestbed(plan.study.options)


def _must_agree(
    store: StudyStore, name: str, given: Mapping[str, Any], parameters: Mapping[str, Any], folder: str
) -> None:
    """A study that is continued keeps its plan: a parameter that says otherwise is refused, not ignored."""
    plan = store.plan
    if plan.study.name != name:
        raise UsageError(f"study_dir = {folder!r}: holds the study {plan.study.name}, not {name}")
    # Where its files lie may change, but not what they are called, nor the cluster.
    began = store.environment.get("testbed")
    context = began.get("context") if isinstance(began, Mapping) else None
    sealed = without_folders(plan.study.parameters) | {"context": context}
    parameters = without_folders(parameters) | {"context": parameters.get("context")}
    empty: tuple[Any, ...] = ("", 0, 0.0)
    module = study_module(name)
    declared = module.SETTINGS.settings
    for key in given:
        value, one = parameters[key], declared[key]
        unsealed = key in (*UNSEALED, "cluster_file")  # of that what it says is compared
        # A list of one number may have been sealed as the number.
        recorded = one.text(one.read(sealed[key])) if one.listed and key in sealed else sealed.get(key)
        if unsealed or value in empty or value == one.text(one.default) or value == recorded:
            continue
        raise UsageError(
            f"{key} = {value!r}: the plan in {folder} was sealed with {sealed.get(key)!r}; "
            "leave it out to go on, or leave study_dir out to start a new study"
        )
