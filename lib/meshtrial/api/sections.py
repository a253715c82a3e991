"""Sections of a report: figures and tables that are read together, as one object for one notebook cell.

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
from meshtrial.report import Figure, Fragment
from meshtrial.report.first_screen import first_screen
from meshtrial.report.markup import Displayable, Form
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
        """Its parts in one of their forms."""
        return Fragment("section", self.parts).laid_out(form)


def verdict(study: RecordedStudy) -> Section:
    """What was found, in a sentence and a picture; whether it can be trusted; every contrast in numbers.

    Where the treatments were compared with each other too: which is better than which.
    """
    found: list[Figure | Fragment] = [first_screen(study.data)]
    if BETWEEN in study.data.plan.study.families():
        found += [tables.ranks(study), figures.pairs(study)]
    return Section((*found, tables.verdict_table(study), figures.forest(study)))


def every_run(study: RecordedStudy, *responses: str) -> Section:
    """What the verdicts were computed from: every run as a dot, block by block.

    Parameters
    ----------
    study : RecordedStudy
    *responses : str
        The first two primary ones where none are given.
    """
    return Section(tuple(figures.runs_by_block(study, name) for name in responses or study.primary[:2]))


def latency(study: RecordedStudy) -> Section:
    """The whole distribution, what each percentile adds, and the runs over their time, or over a rate that rises."""
    rises = any(load.kind == "ramp" for load in study.data.plan.study.loads)
    over_time = [figures.ramp(study)] if rises else [figures.course(study), figures.strip(study)]
    # Why there is no course is said once.
    shown = [over_time[0], *(figure for figure in over_time[1:] if not figure.nothing)]
    return Section((figures.latency_ccdf(study), figures.added_latency(study), *shown))


def resources(study: RecordedStudy) -> Section:
    """CPU and memory by part of the system, what 1000 requests a second cost, and system calls where counted.

    Of what only some treatments have, a control plane above all, medians with intervals.
    """
    parts = (tables.cost(study), tables.described(study), tables.mechanism(study))
    return Section((figures.resources(study), *(part for part in parts if part.text)))


def validity(study: RecordedStudy) -> Section:
    """The runs behind the checks: every check, proof and failure, drift, more generators where asked for."""
    varied = any(load.generators_vary for load in study.data.plan.study.loads)
    return Section((tables.validity(study), *([tables.generators(study)] if varied else []), figures.drift(study)))


def method(study: RecordedStudy) -> Section:
    """What was decided before the first run, what more blocks would find, how verdicts were reached, their limits."""
    curve = figures.power(study)
    return Section((tables.design(study), *([] if curve.nothing else [curve]), tables.method_and_limits(study)))
