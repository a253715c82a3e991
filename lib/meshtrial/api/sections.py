"""Sections of a report: figures and tables that belong together, as one object for one notebook cell.

Examples
--------
>>> import meshtrial as mt
>>> study = mt.open_study("data/sample/ambient_vs_no_mesh/20261121T211720Z-77c58730")
>>> [type(part).__name__ for part in mt.sections.verdict(study).parts]
['Fragment', 'Fragment', 'Figure']
"""

from __future__ import annotations

from dataclasses import dataclass

from meshtrial.api import figures, tables
from meshtrial.api.study import RecordedStudy
from meshtrial.report import Fragment
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Displayable, Form
from meshtrial.report.tables.headline import first_screen
from meshtrial.vocabulary import BETWEEN

__all__ = ["Section", "every_run", "latency", "method", "resources", "validity", "verdict"]


@dataclass(frozen=True, repr=False)
class Section(Displayable):
    """Several figures and tables, shown one after another.

    Attributes
    ----------
    parts : tuple of Figure or Fragment
    """

    parts: tuple[Figure | Fragment, ...]

    def laid_out(self, form: Form) -> str:
        """Return its parts in one of their forms."""
        return Fragment("section", self.parts).laid_out(form)


def verdict(study: RecordedStudy) -> Section:
    """Return the result in a sentence and a picture, checks of its validity, and all contrasts in numbers.

    If the treatments were also compared with each other, their ranking is included.
    """
    parts: list[Figure | Fragment] = [first_screen(study.data)]
    if BETWEEN in study.data.plan.study.families():
        parts += [tables.ranks(study), figures.pairs(study)]
    return Section((*parts, tables.verdict_table(study), figures.forest(study)))


def every_run(study: RecordedStudy, *responses: str) -> Section:
    """Return figures of every run, block by block: the data behind the verdicts.

    Parameters
    ----------
    study : RecordedStudy
    *responses : str
        By default the first two primary responses.
    """
    return Section(tuple(figures.runs_by_block(study, name) for name in responses or study.primary[:2]))


def latency(study: RecordedStudy) -> Section:
    """Return the latency distribution, the added latency by percentile, and the runs over time or a rising rate."""
    rises = any(load.kind == "ramp" for load in study.data.plan.study.loads)
    over_time = [figures.ramp(study)] if rises else [figures.course(study), figures.strip(study)]
    # Only the first figure explains why there is no course over time.
    drawn = [over_time[0], *(figure for figure in over_time[1:] if not figure.nothing)]
    return Section((figures.latency_ccdf(study), figures.added_latency(study), *drawn))


def resources(study: RecordedStudy) -> Section:
    """Return CPU and memory by part of the system, the cost of 1000 requests per second, and counted system calls.

    Parts that only some treatments have, such as a control plane, are described by medians with intervals.
    """
    parts = (tables.cost(study), tables.described(study), tables.mechanism(study))
    return Section((figures.resources(study), *(part for part in parts if part.text)))


def validity(study: RecordedStudy) -> Section:
    """Return effects by session, run checks with all failures, and drift; if measured, effects of load generators."""
    varied = any(load.generators_vary for load in study.data.plan.study.loads)
    by_session = figures.sessions(study)
    parts = [by_session] if not by_session.nothing else []
    return Section(
        (*parts, tables.validity(study), *([tables.generators(study)] if varied else []), figures.drift(study))
    )


def method(study: RecordedStudy) -> Section:
    """Return the design, the power of more blocks, the method, and its limits."""
    curve = figures.power(study)
    return Section((tables.design(study), *([] if curve.nothing else [curve]), tables.method_and_limits(study)))
