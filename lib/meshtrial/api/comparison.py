"""Results that are already there, compared: what ``meshtrial compare`` does, as an object."""

from __future__ import annotations

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
from meshtrial.report import Figure, Fragment
from meshtrial.report.markup import Displayable, Form

Files: TypeAlias = str | Path | Sequence[str | Path]


@dataclass(frozen=True, repr=False)
class Comparison(Displayable):
    """Runs of several treatments, judged by the same inference as a study.

    Attributes
    ----------
    outcome : Outcome
        The comparison as the library itself holds it.
    """

    outcome: Outcome

    @property
    def responses(self) -> tuple[str, ...]:
        """What was compared, in the order asked for."""
        return tuple(metric.name for metric in self.outcome.metrics)

    def verdicts(self) -> pl.DataFrame:
        """One row per response and treatment; the columns are those of a study's verdicts."""
        return verdict_frame(self.outcome.rows)

    def limits(self) -> Fragment:
        """What so many runs can show at all."""
        return page.limits(self.outcome)

    def table(self) -> Fragment:
        """Every contrast: values, change, interval, verdict."""
        return page.verdicts(self.outcome)

    def forest(self) -> Figure:
        """Ratio to the baseline with interval and margin, one line per contrast."""
        return page.ratios(self.outcome)

    def every_run(self, response: str = "") -> Figure:
        """One response of every run.

        Parameters
        ----------
        response : str, optional
            As in :attr:`responses`; the first where it is left out.
        """
        for metric in self.outcome.metrics:
            if response in ("", metric.name):
                return page.every_run(self.outcome, metric)
        raise UsageError(f"every_run({response!r}): was not compared; there are {', '.join(self.responses)}")

    def warnings(self) -> Fragment:
        """What a reader must know, and how it was computed."""
        return page.warnings(self.outcome)

    def laid_out(self, form: Form) -> str:
        """Its table in one of its forms."""
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
    """Compare load-test results that are already there: files of fortio and of other load generators, a run each.

    Parameters
    ----------
    baseline : path, pattern, folder, or several of them
        One file is one run.
    treatments : mapping of str to the same
        What is compared with it, by name.
    responses : str, optional
        ``p50,p99`` where left out. The first three are corrected by Holm, others are exploratory.
    margin : str, optional
        What is too small to matter: ``5%``, ``p50=5%,p99=10%``, ``p50=0.2ms``. What is not given keeps its default;
        ``5%,0ms`` is without an absolute floor.
    pair_by : str, optional
        ``order``, ``label`` or ``name``, where runs of the treatments belong together.
    merge : bool, optional
        The files of one folder are the generators of one run.
    alpha : float, optional
        Error level of a family.
    sample_floor : float, optional
        Requests of a run that must lie beyond a percentile.
    force : bool, optional
        Compare what differs in its load all the same, and name it.
    name : str, optional
        What the baseline is called.

    Raises
    ------
    MeshtrialError
        Where a file cannot be read, or what it holds cannot be compared, with every reason.

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
        raise UsageError("treatments: names none, e.g. {'istio': 'istio/*.json'}")
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
    """Compare the runs of a CSV or Parquet with the columns run, block, treatment, response, value and maybe unit.

    Parameters
    ----------
    path : str or Path
    baseline : str
        A name of the column ``treatment``.
    treatments : sequence of str, optional
        All others where none are named.
    where : mapping of str to str, optional
        Only rows with these values in these columns.
    responses, margin, alpha, force
        As in :func:`compare`; without ``responses`` all of the table. A block makes the runs paired.

    Examples
    --------
    >>> import meshtrial as mt
    >>> printed = {"experiment": "details, old app"}
    >>> found = mt.compare_table("data/published/ambient_2024.csv", "none", where=printed, responses="p50")
    >>> found.limits()
    3 blocks: the smallest possible p is 2/8 = 0.25. Nothing below 0.25 is possible, ... it takes at least 6 blocks.
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
        raise UsageError("treatment '': a name is needed")
    if not patterns:
        raise UsageError(f"treatment {name!r}: names no file")
    return Named(name, tuple(map(str, patterns)))
