"""Comparisons of existing results as an object, like ``meshtrial compare``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import polars as pl

from meshtrial.compare import page
from meshtrial.compare.analysis import Outcome
from meshtrial.compare.request import Named, Request, judge
from meshtrial.errors import UsageError
from meshtrial.records.columns import verdict_frame
from meshtrial.report import Fragment
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Displayable, Form

Files: TypeAlias = str | Path | Sequence[str | Path]


@dataclass(frozen=True, repr=False)
class Comparison(Displayable):
    """Runs of several treatments, analysed with the same statistics as a study.

    Attributes
    ----------
    outcome : Outcome
        The comparison as the library represents it.
    """

    outcome: Outcome

    @property
    def responses(self) -> tuple[str, ...]:
        """Names of the compared responses, in the requested order."""
        return tuple(metric.name for metric in self.outcome.metrics)

    def verdicts(self) -> pl.DataFrame:
        """Return one row per response and treatment, with the columns of a study's verdicts."""
        return verdict_frame(self.outcome.rows)

    def limits(self) -> Fragment:
        """Return the smallest possible p-values for this number of runs."""
        return page.limits(self.outcome)

    def table(self) -> Fragment:
        """Return a table of all contrasts: values, change, interval, verdict."""
        return page.verdicts(self.outcome)

    def forest(self) -> Figure:
        """Draw the ratio to the baseline with interval and margin, one line per contrast."""
        return page.ratios(self.outcome)

    def every_run(self, response: str = "") -> Figure:
        """Draw one response of every run.

        Parameters
        ----------
        response : str, optional
            One of :attr:`responses`; by default the first.
        """
        for metric in self.outcome.metrics:
            if response in ("", metric.name):
                return page.every_run(self.outcome, metric)
        raise UsageError(f"every_run({response!r}): was not compared; choose one of {', '.join(self.responses)}")

    def warnings(self) -> Fragment:
        """Return all warnings, and the method."""
        return page.warnings(self.outcome)

    def laid_out(self, form: Form) -> str:
        """Return the table in one of its forms."""
        return self.table().laid_out(form)


def compare(
    baseline: Files,
    treatments: Mapping[str, Files],
    *,
    responses: str = "",
    margin: str = "",
    pair_by: str = "",
    merge: bool = False,
    alpha: float = 0.05,
    sample_floor: float = 100.0,
    force: bool = False,
    name: str = "baseline",
) -> Comparison:
    """Compare existing result files of fortio and other load generators; each file is one run.

    Parameters
    ----------
    baseline : path, pattern, folder, or several of them
        Files of the baseline.
    treatments : mapping of str to the same
        Files of each treatment, by its name.
    responses : str, optional
        By default ``p50,p99``. The first three are primary (Holm's correction), others are exploratory.
    margin : str, optional
        Largest change that does not matter: ``5%``, ``p50=5%,p99=10%``, ``p50=0.2ms``, ``p50=5% of 0.8ms``. Parts
        that are left out keep their default; ``5%,0ms`` has no absolute floor.
    pair_by : str, optional
        How runs of the treatments are paired: ``order``, ``label`` or ``name``. By default they are not paired.
    merge : bool, optional
        Whether the files of one folder are load generators of one run.
    alpha : float, optional
        Error level of a family.
    sample_floor : float, optional
        Number of requests of a run that must lie beyond a percentile.
    force : bool, optional
        Whether to compare runs with different loads, and list the differences.
    name : str, optional
        Name of the baseline.

    Raises
    ------
    MeshtrialError
        If a file cannot be read, or the files cannot be compared; the message lists all reasons.

    Examples
    --------
    >>> import meshtrial as mt
    >>> runs = "data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730/runs"
    >>> meshes = {"node-proxy": f"{runs}/*-node-proxy/fortio.json"}
    >>> found = mt.compare(f"{runs}/*-none/fortio.json", meshes, responses="p50", name="none")
    >>> found.verdicts()["verdict"].to_list()
    ['slower']
    """
    if not treatments:
        raise UsageError("treatments: is empty; give e.g. {'istio': 'istio/*.json'}")
    request = Request(
        _named(name, baseline),
        tuple(_named(treatment, files) for treatment, files in treatments.items()),
        pair_by=pair_by,
        merge=merge,
        responses=responses,
        margins=(margin,) if margin else (),
        alpha=alpha,
        sample_floor=sample_floor,
        force=force,
    )
    return Comparison(judge(request))


def compare_table(
    path: str | Path,
    baseline: str,
    treatments: Sequence[str] = (),
    *,
    where: Mapping[str, str] | None = None,
    responses: str = "",
    margin: str = "",
    alpha: float = 0.05,
    force: bool = False,
) -> Comparison:
    """Compare the runs of a CSV or Parquet table: run, block, treatment, response, value and optionally unit.

    Parameters
    ----------
    path : str or Path
    baseline : str
        A value of the column ``treatment``.
    treatments : sequence of str, optional
        By default all other values of that column.
    where : mapping of str to str, optional
        Use only rows with these values in these columns.
    responses, margin, alpha, force
        As in :func:`compare`; by default all responses of the table. A block pairs its runs.

    Examples
    --------
    >>> import meshtrial as mt
    >>> printed = {"experiment": "details, old app"}
    >>> found = mt.compare_table("data/published/ambient_2024.csv", "none", where=printed, responses="p50")
    >>> found.limits()
    3 blocks: the smallest possible p is 2/8 = 0.25. Nothing below 0.25 is possible, ... at least 6 blocks are needed.
    """
    request = Request(
        Named(baseline),
        tuple(map(Named, treatments)),
        Path(path).expanduser(),
        tuple((where or {}).items()),
        responses=responses,
        margins=(margin,) if margin else (),
        alpha=alpha,
        force=force,
    )
    return Comparison(judge(request))


def _named(name: str, files: Files) -> Named:
    patterns = [files] if isinstance(files, str | Path) else list(files)
    if not name:
        raise UsageError("treatment '': the name is empty; give one")
    if not patterns:
        raise UsageError(f"treatment {name!r}: has no files; give a path or pattern")
    return Named(name, tuple(map(str, patterns)))
