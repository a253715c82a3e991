"""A recorded study as an object, opened or measured now, and the meaning of its frames' columns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import polars as pl

from meshtrial.errors import UsageError
from meshtrial.inference import read_study
from meshtrial.inference.reanalysis import reanalyse
from meshtrial.records.columns import FRAMES, REQUESTS, RESPONSES, RUNS, frame_of, run_columns, verdict_frame
from meshtrial.records.dataset import StudyData, subset
from meshtrial.records.listing import listing
from meshtrial.records.store import StudyStore
from meshtrial.report.marking import marked
from meshtrial.run.trial import Trial


@dataclass(frozen=True)
class RecordedStudy:
    """A study that was measured and analysed.

    ``mt.columns("verdicts")`` explains the columns of a frame. The examples of the methods use the ``study`` opened
    below.

    Attributes
    ----------
    data : StudyData
        The record as the library represents it.
    after_the_fact : str
        What :meth:`reanalyse` changed, and what was declared; empty for the study's own verdicts. All figures and
        tables show it.
    whole : StudyData or None
        The original record, if ``data`` is a re-analysis or a part of it.

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
        """The original record with its declared analysis."""
        return self.whole or self.data

    @property
    def name(self) -> str:
        """The study's name, which is also its notebook's."""
        return self.data.plan.study.name

    @property
    def question(self) -> str:
        """The question of the study."""
        return self.data.plan.study.question

    @property
    def path(self) -> Path:
        """The folder of the study."""
        return self.data.path

    @property
    def treatments(self) -> tuple[str, ...]:
        """Names of the treatments in the order of the plan, usually the baseline and its A/A twin first."""
        return tuple(treatment.name for treatment in self.data.plan.study.treatments)

    @property
    def primary(self) -> tuple[str, ...]:
        """The responses that were declared before the first run, at most three."""
        return self.data.plan.study.primary

    def verdicts(self) -> pl.DataFrame:
        """Return one row per contrast, response and load: verdict, estimate, interval and tests.

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
        """Analyse the same runs with another margin, error level or baseline, chosen after the fact.

        The study's own verdicts do not change. Tables and figures of the returned study name the declared choices, and
        all its verdicts are exploratory. Each call starts from the declared analysis.

        Parameters
        ----------
        margin : str, optional
            ``10%``, ``0.2ms`` or ``10%,0.2ms`` for every response, ``p50=5%,p99=10%`` for some; others keep the
            declared margin.
        alpha : float, optional
            Error level of a family.
        baseline : str, optional
            A treatment with which all others are compared, in one family per response and load.
        pairs : bool, optional
            Also compare all pairs of treatments, in a separate family; :func:`meshtrial.tables.ranks` ranks them.

        Raises
        ------
        UsageError
            If the margin, level or treatment is invalid.

        Examples
        --------
        >>> wide = study.reanalyse(margin="p50=200%")
        >>> [each.verdicts().row(0, named=True)["sentence"] for each in (study, wide)]
        ['slower (material)', 'slower (below margin)']
        >>> wide.after_the_fact.replace("\u00a0", " ")
        'margin of p50 latency 200 % instead of 5 %, declared before the runs'
        """
        again = reanalyse(self.recorded, margin=margin, alpha=alpha, baseline=baseline, pairs=pairs)
        return RecordedStudy(again.data, again.changes, self.recorded)

    def only(self, *, treatments: Sequence[str] = (), loads: Sequence[str] = ()) -> RecordedStudy:
        """Return the same study with only some of its treatments and loads; no number changes.

        Corrections still cover the families of the whole study. Baselines of the remaining treatments and the A/A twin
        are always kept.

        Parameters
        ----------
        treatments, loads : sequence of str, optional
            Names of treatments and labels of loads; by default all.

        Raises
        ------
        UsageError
            If the study has no such treatment or load.

        Examples
        --------
        >>> study.only(treatments=["none"]).verdicts()["treatment"].unique().to_list()
        ['none-aa']
        """
        return RecordedStudy(subset(self.data, treatments, loads), self.after_the_fact, self.recorded)

    def runs(self) -> pl.DataFrame:
        """Return one row per run and attempt, valid or not, in the order in which they ran.

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
        """Return one row per run and response, in stored units: the data behind the verdicts.

        Examples
        --------
        >>> import polars as pl
        >>> p50 = study.responses().filter(pl.col("included"), pl.col("response") == "latency_p50_s")
        >>> p50.group_by("treatment").agg(pl.col("value").median() * 1e3).sort("value")["treatment"].to_list()[-1]
        'node-proxy'
        """
        return self.data.table.select(pl.col(name).cast(column.kind) for name, column in RESPONSES.items())

    def requests(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """Return one row per request of one run.

        Parameters
        ----------
        run_id : str
            As in :meth:`runs`.
        attempt : int, optional
            2 for the repeat of a failed run.

        Examples
        --------
        >>> study.requests("01-1-none").height
        300
        """
        requests = self.data.latency(self.data.find_run(run_id, attempt))
        return requests.select(pl.col(name).cast(column.kind) for name, column in REQUESTS.items())

    def series(self, run_id: str, attempt: int = 1) -> pl.DataFrame:
        """Return one run second by second: its requests, and CPU and memory of its components.

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
        """Return the names of the recorded logs of one run; :func:`mt.tables.run_log` shows one.

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
    """List the studies that :func:`open_study` can open: samples first, then recorded studies, newest first.

    Returns
    -------
    dict of str to Path
        ``<study>-<UTC>-<hash>`` to its folder, or to the file of a packed study. Each is listed once; a folder takes
        precedence over the file that it came from.

    Examples
    --------
    >>> import meshtrial as mt
    >>> next(iter(mt.recorded_studies()))
    'ambient_vs_no_mesh-20261121T211720Z-77c58730'
    """
    return listing()


def open_study(path: str | Path) -> RecordedStudy:
    """Open a study that was recorded and analysed, without computing or writing anything.

    Parameters
    ----------
    path : str or Path
        Folder of the study, e.g. one that ``meshtrial status`` lists.

    Raises
    ------
    MeshtrialError
        If there is no such folder, or the study was never analysed (run ``meshtrial report FOLDER``).

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730").name
    'ambient_vs_no_mesh'
    >>> mt.open_study("data/sample/nothing")
    Traceback (most recent call last):
    meshtrial.errors.UsageError: ...data/sample/nothing: no such study folder; `meshtrial status` lists all studies
    """
    return RecordedStudy(read_study(StudyStore.open(Path(path).expanduser().resolve())))


def run(name: str, /, *, progress: Callable[[str], None] | None = None, **parameters: Any) -> RecordedStudy:
    """Measure a study, or the missing runs of one, and analyse it. This takes minutes to days.

    Parameters
    ----------
    name : str
        ``ambient_vs_no_mesh``, ``feature_impact``, ``mesh_comparison``, ``scale_out``, ``calibration`` or
        ``decomposition``.
    progress : callable, optional
        Called with a line of text before every run. By default progress is a bar in a notebook, a changing line on a
        terminal, and lines elsewhere.
    **parameters
        Parameters of the notebook of that name. ``study_dir`` resumes the study in that folder; with
        ``measure=False`` it is only analysed again.

    Raises
    ------
    MeshtrialError
        Before anything is measured, if a parameter is unknown or invalid, or a tool is missing.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.run("ambient_vs_no_mesh", rsp=500)
    Traceback (most recent call last):
    meshtrial.errors.UsageError: parameter 'rsp' is not known: did you mean rps? must be one of profile, ...
    """
    given = {key: str(value) if isinstance(value, Path) else value for key, value in parameters.items()}
    return RecordedStudy(Trial(name, given).run(progress))


def run_notebook(name: str) -> RecordedStudy:
    """Measure a study with the parameters of this notebook's parameter cells, edited by hand or set by papermill.

    An unknown parameter is an error; papermill itself only warns of it.

    Parameters
    ----------
    name : str
        Name of the study.
    """
    return RecordedStudy(Trial.from_notebook(name).run())


def columns(frame: str) -> pl.DataFrame:
    """Explain the columns of a frame.

    Parameters
    ----------
    frame : str
        ``verdicts``, ``runs``, ``responses``, ``requests`` or ``series``: the method that returns the frame.

    Returns
    -------
    polars.DataFrame
        Columns ``name``, ``type``, ``unit`` and ``meaning``.

    Examples
    --------
    >>> import meshtrial as mt
    >>> mt.columns("runs").filter(name="deploy_s").row(0)
    ('deploy_s', 'Float64', 's', 'time from the start of the deployment until it is ready')
    """
    if frame not in FRAMES:
        raise UsageError(f"columns({frame!r}): no such frame; choose one of {', '.join(FRAMES)}")
    return pl.DataFrame(
        [(name, str(column.kind), column.unit, column.meaning) for name, column in FRAMES[frame].items()],
        schema=["name", "type", "unit", "meaning"],
        orient="row",
    )


# --- functions of a record, for recorded studies ----------------------------------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")


def of_study(function: Callable[Concatenate[StudyData, P], R]) -> Callable[Concatenate[RecordedStudy, P], R]:
    """Return the function for a recorded study; ``help()`` and type checkers see its own parameters."""

    def call(study: RecordedStudy, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return marked(function(study.data, *args, **kwargs), study.after_the_fact)

    return _like(function, call)


def of_record(function: Callable[Concatenate[StudyData, P], R]) -> Callable[Concatenate[RecordedStudy, P], R]:
    """Return the function for the declared analysis of a recorded study, without any re-analysis after the fact."""

    def call(study: RecordedStudy, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(study.recorded, *args, **kwargs)

    return _like(function, call)


def _like(
    function: Callable[Concatenate[StudyData, P], R], call: Callable[Concatenate[RecordedStudy, P], R]
) -> Callable[Concatenate[RecordedStudy, P], R]:
    functools.update_wrapper(call, function)
    call.__doc__ = (function.__doc__ or "").replace("data : StudyData", "study : RecordedStudy")
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    study = first.replace(name="study", annotation="RecordedStudy", kind=inspect.Parameter.POSITIONAL_ONLY)
    call.__dict__["__signature__"] = signature.replace(parameters=[study, *rest])
    return call
