"""A recorded study as an object: opened, or measured now; and what the columns of its frames mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from meshtrial.errors import UsageError
from meshtrial.inference import read_study
from meshtrial.inference.reanalysis import reanalyse
from meshtrial.records.columns import FRAMES, REQUESTS, RESPONSES, RUNS, frame_of, run_columns, verdict_frame
from meshtrial.records.dataset import StudyData, subset
from meshtrial.records.listing import listing
from meshtrial.records.store import StudyStore
from meshtrial.run.trial import Trial


@dataclass(frozen=True)
class RecordedStudy:
    """A study that was measured and analysed.

    ``mt.columns("verdicts")`` and so on say what the columns of its frames mean. The examples of its methods are of the
    ``study`` that is opened here.

    Attributes
    ----------
    data : StudyData
        The record as the library itself reads it.
    after_the_fact : str
        What was chosen after the runs, and what was declared instead (:meth:`reanalyse`); empty for the study's own
        verdicts. Whatever is shown of it says so.
    whole : StudyData or None
        The record as it was made, where ``data`` is another analysis of it or a part.

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
    after_the_fact: str = ""
    whole: StudyData | None = None

    @property
    def recorded(self) -> StudyData:
        """The record as it was made, and analysed as it was declared."""
        return self.whole or self.data

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
        """One row per contrast, response and load: what was decided, with estimate, interval and tests.

        Examples
        --------
        >>> found = study.verdicts().row(0, named=True)
        >>> found["treatment"], found["response"], found["verdict"]
        ('node-proxy', 'latency_p50_s', 'slower')
        """
        return verdict_frame(self.data.verdicts)

    def reanalyse(
        self, *, margin: str = "", alpha: float | None = None, baseline: str = "", pairs: bool = False
    ) -> RecordedStudy:
        """Judge the same runs under another margin, error level or baseline, chosen after the fact.

        The study's own verdicts stay what they are. Everything shown of what is returned is marked with what was
        declared instead, and all its verdicts are exploratory. Each call starts from what was declared.

        Parameters
        ----------
        margin : str, optional
            ``10%``, ``0.2ms`` or ``10%,0.2ms`` for every response, ``p50=5%,p99=10%`` for some; what is not given
            stays as it was declared.
        alpha : float, optional
            Error level of a family.
        baseline : str, optional
            A treatment: all others are compared with it, in one family a response and load.
        pairs : bool, optional
            All pairs of treatments too, in a family of their own: :func:`meshtrial.tables.ranks` then ranks them.

        Raises
        ------
        UsageError
            For a margin, level or treatment that cannot be.

        Examples
        --------
        >>> wide = study.reanalyse(margin="p50=200%")
        >>> [one.verdicts().row(0, named=True)["sentence"] for one in (study, wide)]
        ['slower (material)', 'slower (below margin)']
        >>> wide.after_the_fact.replace("\u00a0", " ")
        'margin of p50 latency 200 % instead of 5 %, declared before the runs'
        """
        again = reanalyse(self.recorded, margin=margin, alpha=alpha, baseline=baseline, pairs=pairs)
        return RecordedStudy(again.data, again.changes, self.recorded)

    def only(self, *, treatments: Sequence[str] = (), loads: Sequence[str] = ()) -> RecordedStudy:
        """The same study with some of its treatments and loads shown; every number stays what it was.

        Families are those of the whole study, so hiding a treatment corrects nothing less. What the shown ones are
        compared with, and the A/A twin, stay.

        Parameters
        ----------
        treatments, loads : sequence of str, optional
            Names, and labels of loads; none is all of them.

        Raises
        ------
        UsageError
            For a treatment or load that the study does not have.

        Examples
        --------
        >>> study.only(treatments=["none"]).verdicts()["treatment"].unique().to_list()
        ['none-aa']
        """
        return RecordedStudy(subset(self.data, treatments, loads), self.after_the_fact, self.recorded)

    def runs(self) -> pl.DataFrame:
        """One row per run and attempt, valid or not, in the order in which they ran.

        Examples
        --------
        >>> study.runs().group_by("treatment").len().sort("treatment").rows()
        [('node-proxy', 8), ('none', 8), ('none-aa', 8)]
        """
        included = {(run.run_id, run.attempt) for run in self.data.included_runs()}
        rows = [
            run_columns(run, (run.run_id, run.attempt) in included)
            | {
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
        """One row per run and response, in the units in which they are stored: what the verdicts are computed from.

        Examples
        --------
        >>> import polars as pl
        >>> p50 = study.responses().filter(pl.col("included"), pl.col("response") == "latency_p50_s")
        >>> p50.group_by("treatment").agg(pl.col("value").median() * 1e3).sort("value")["treatment"].to_list()[-1]
        'node-proxy'
        """
        return self.data.table.select(pl.col(name).cast(one.kind) for name, one in RESPONSES.items())

    def requests(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """One row per request of one run.

        Parameters
        ----------
        run_id : str
            As in :meth:`runs`.
        attempt : int, optional
            2 for the repeat of a run that was not valid.

        Examples
        --------
        >>> study.requests("01-1-none").height
        300
        """
        requests = self.data.latency(self.data.find_run(run_id, attempt))
        return requests.select(pl.col(name).cast(one.kind) for name, one in REQUESTS.items())

    def series(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """One run over its time, second by second: requests, and CPU and memory of its components.

        Parameters
        ----------
        run_id : str
            As in :meth:`runs`.
        attempt : int, optional

        Examples
        --------
        >>> study.series("01-1-none").filter(measure="sent")["value"].sum()
        300.0
        """
        return self.data.series(self.data.find_run(run_id, attempt))

    def logs(self, run_id: str, attempt: int = 1) -> tuple[str, ...]:
        """Names of the logs that were kept of one run; :func:`mt.tables.run_log` shows one.

        Examples
        --------
        >>> study.logs("01-1-none")
        ('app.log', 'fortio.txt')
        """
        return tuple(self.recorded.logs(self.recorded.find_run(run_id, attempt)))

    def __repr__(self) -> str:
        counts = f"{len(self.data.runs)} runs, {len(self.data.verdicts)} verdicts"
        later = f"; after the fact: {self.after_the_fact}" if self.after_the_fact else ""
        return f"{self.name}: {', '.join(self.treatments)}; {counts}{later}"


def recorded_studies() -> dict[str, Path]:
    """What :func:`open_study` can open here: the samples of the checkout first, then what was recorded, newest first.

    Returns
    -------
    dict of str to Path
        ``<study>-<UTC>-<hash>`` to its folder, or to its file where it is packed. Each once: a folder goes before the
        file that it came from.

    Examples
    --------
    >>> import meshtrial as mt
    >>> next(iter(mt.recorded_studies()))
    'ambient_vs_no_mesh-20261121T211720Z-77c58730'
    """
    return listing()


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
        ``measure=False`` besides, it is only analysed again.

    Raises
    ------
    MeshtrialError
        Before anything is measured: a parameter that is not known or not allowed, or a tool that is missing.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.run("ambient_vs_no_mesh", rsp=500)
    Traceback (most recent call last):
    meshtrial.errors.UsageError: parameter 'rsp' is not known: did you mean rps? must be one of profile, ...
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


def columns(frame: str) -> pl.DataFrame:
    """What the columns of a frame mean.

    Parameters
    ----------
    frame : str
        ``verdicts``, ``runs``, ``responses``, ``requests`` or ``series``: the method that returns it.

    Returns
    -------
    polars.DataFrame
        Columns ``name``, ``type``, ``unit`` and ``meaning``.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.columns("runs").filter(name="deploy_s").row(0)
    ('deploy_s', 'Float64', 's', 'from nothing to ready')
    """
    if frame not in FRAMES:
        raise UsageError(f"columns({frame!r}): is no frame; there are {', '.join(FRAMES)}")
    return pl.DataFrame(
        [(name, str(one.kind), one.unit, one.meaning) for name, one in FRAMES[frame].items()],
        schema=["name", "type", "unit", "meaning"],
        orient="row",
    )
