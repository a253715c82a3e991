"""A recorded study as an object: opened, or measured now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from meshtrial.api.schema import REQUESTS, RESPONSES, RUNS, VERDICTS, frame_of
from meshtrial.errors import UsageError
from meshtrial.inference import read_study
from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import RunRecord
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial


@dataclass(frozen=True)
class RecordedStudy:
    """A study that was measured and analysed.

    ``mt.columns("verdicts")`` and so on say what the columns of its frames mean.

    Attributes
    ----------
    data : StudyData
        The record as the library itself reads it.

    Examples
    --------
    >>> import meshtrial as mt
    >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
    >>> study
    ambient_vs_no_mesh: none, none-aa, node-proxy; 24 runs, 34 verdicts
    >>> study.primary
    ('latency_p50_s', 'latency_p99_s', 'path_cpu_s_per_request')
    """

    data: StudyData

    @property
    def name(self) -> str:
        """The study's name, which is also its notebook's."""
        return self.data.plan.study.name

    @property
    def question(self) -> str:
        """What it asks."""
        return self.data.plan.study.question

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.data.path

    @property
    def treatments(self) -> tuple[str, ...]:
        """What was compared, the baseline first and its A/A twin after it, unless the plan says otherwise."""
        return tuple(treatment.name for treatment in self.data.plan.study.treatments)

    @property
    def primary(self) -> tuple[str, ...]:
        """The responses that were declared before the first run, at most three."""
        return self.data.plan.study.primary

    def verdicts(self) -> pl.DataFrame:
        """A row a contrast, response and load: what was decided, with estimate, interval and tests.

        Examples
        --------
        >>> import meshtrial as mt
        >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
        >>> found = study.verdicts().row(0, named=True)
        >>> found["treatment"], found["response"], found["verdict"]
        ('node-proxy', 'latency_p50_s', 'slower')
        """
        return frame_of([row.to_dict() | {"adjustment": row.adjustment} for row in self.data.verdicts], VERDICTS)

    def runs(self) -> pl.DataFrame:
        """A row a run and attempt, valid or not, in the order in which they ran.

        Examples
        --------
        >>> import meshtrial as mt
        >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
        >>> study.runs().group_by("treatment").len().sort("treatment").rows()
        [('node-proxy', 8), ('none', 8), ('none-aa', 8)]
        """
        included = {(run.run_id, run.attempt) for run in self.data.included_runs()}
        rows = [
            {
                "run_id": run.run_id,
                "load": run.load,
                "block": run.repetition,
                "position": run.position,
                "sequence": run.sequence,
                "treatment": run.treatment,
                "app": run.app,
                "attempt": run.attempt,
                "start_unix_s": run.start_unix_s,
                "valid": run.valid,
                "included": (run.run_id, run.attempt) in included,
                "deploy_s": run.deploy_s,
                "requests": sum(generator.requests for generator in run.generators),
                "errors": sum(generator.errors for generator in run.generators),
                "achieved_rps": float(sum(generator.achieved_rps for generator in run.generators)),
                "reasons": list(run.reasons),
            }
            for run in self.data.runs
        ]
        return frame_of(rows, RUNS)

    def responses(self) -> pl.DataFrame:
        """A row a run and response, in the units in which they are stored: what the verdicts are computed from.

        Examples
        --------
        >>> import meshtrial as mt
        >>> import polars as pl
        >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
        >>> p50 = study.responses().filter(pl.col("included"), pl.col("response") == "latency_p50_s")
        >>> p50.group_by("treatment").agg(pl.col("value").median() * 1e3).sort("value")["treatment"].to_list()[-1]
        'node-proxy'
        """
        return self.data.table.select(pl.col(name).cast(one.kind) for name, one in RESPONSES.items())

    def requests(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """A row a request of one run.

        Parameters
        ----------
        run_id : str
            As in :meth:`runs`.
        attempt : int, optional
            2 for the repeat of a run that was not valid.

        Examples
        --------
        >>> import meshtrial as mt
        >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
        >>> study.requests("01-1-none").height
        300
        """
        found = self.data.latency(self._run("requests", run_id, attempt))
        return found.select(pl.col(name).cast(one.kind) for name, one in REQUESTS.items())

    def series(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """One run over its time, second by second: requests, and CPU and memory of its components.

        Parameters
        ----------
        run_id : str
            As in :meth:`runs`.
        attempt : int, optional

        Examples
        --------
        >>> import meshtrial as mt
        >>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
        >>> study.series("01-1-none").filter(measure="sent")["value"].sum()
        300.0
        """
        return self.data.series(self._run("series", run_id, attempt))

    def _run(self, asked: str, run_id: str, attempt: int) -> RunRecord:
        for run in self.data.runs:
            if (run.run_id, run.attempt) == (run_id, attempt):
                return run
        raise UsageError(f"{asked}({run_id!r}, attempt={attempt}): no such run; study.runs() lists those there are")

    def __repr__(self) -> str:
        counts = f"{len(self.data.runs)} runs, {len(self.data.verdicts)} verdicts"
        return f"{self.name}: {', '.join(self.treatments)}; {counts}"


def open_study(path: str | Path) -> RecordedStudy:
    """Open a study that was recorded and analysed; nothing is computed or written.

    Parameters
    ----------
    path : str or Path
        Its folder, e.g. one that ``meshtrial status`` lists.

    Raises
    ------
    MeshtrialError
        Where it is no such folder, or was never analysed (``meshtrial report FOLDER`` does).

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730").name
    'ambient_vs_no_mesh'
    >>> mt.open_study("data/sample/nothing")
    Traceback (most recent call last):
    meshtrial.errors.UsageError: ...data/sample/nothing: no such study folder; `meshtrial status` lists those there are
    """
    return RecordedStudy(read_study(StudyStore.open(Path(path).expanduser().resolve())))


def run(name: str, /, *, tell: Callable[[str], None] | None = None, **parameters: Any) -> RecordedStudy:
    """Measure a study, or what is missing of one, and analyse it. This takes minutes to days.

    Parameters
    ----------
    name : str
        ``ambient_vs_no_mesh``, ``feature_impact``, ``mesh_comparison``, ``scale_out``, ``calibration`` or
        ``decomposition``.
    tell : callable, optional
        Gets lines of text, one before every run. Without it there is a bar in a notebook, a line that changes on a
        terminal, and lines elsewhere.
    **parameters
        Those of the notebook of that name. With ``study_dir`` the study in that folder is continued; with
        ``run_missing=False`` besides, it is only analysed again.

    Raises
    ------
    MeshtrialError
        Before anything is measured: a parameter that is not known or not allowed, or a tool that is missing.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.run("ambient_vs_no_mesh", rsp=500)
    Traceback (most recent call last):
    meshtrial.errors.UsageError: parameter 'rsp' is not known: did you mean rps? allowed are profile, ...
    """
    given = {key: str(value) if isinstance(value, Path) else value for key, value in parameters.items()}
    return RecordedStudy(Trial(name, given).run(tell))


def run_notebook(name: str) -> RecordedStudy:
    """The same with the parameters that this notebook's parameter cells have set, by hand or by papermill.

    A parameter that the study does not know is refused: papermill itself only warns.

    Parameters
    ----------
    name : str
        The study.
    """
    return RecordedStudy(Trial.from_notebook(name).run())
