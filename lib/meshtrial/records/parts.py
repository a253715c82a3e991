"""Studies that are divided over several clusters or machines: one plan, of which each place runs its own blocks.

A block is never divided, so the runs that are compared share a place, and differences between places cancel like other
differences between blocks. The plan alone determines which blocks a place runs.

``environment.json`` of a part has the key ``part``. In a merged study it has ``parts`` instead: a description of each
place, with the blocks that were run there.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshtrial.design.plan import Plan, divided
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import SHAPE_ERRORS, shortened

_FORM = re.compile(r"([1-9]\d{0,3})/([1-9]\d{0,3})", re.ASCII)


@dataclass(frozen=True)
class Part:
    """One of ``of`` parts of a study, by its number from 1.

    Examples
    --------
    >>> [list(Part(number, 3).blocks(10)) for number in (1, 2, 3)]
    [[1, 2, 3, 4], [5, 6, 7], [8, 9, 10]]
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``1/3``."""
        match = _FORM.fullmatch(text.strip())
        if match is None or int(match[1]) > int(match[2]):
            raise UsageError(f"part = {text[:40]!r}: must be a part's number and the number of parts, e.g. 1/3")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def blocks(self, total: int) -> range:
        """Return its consecutive blocks of this many; the first parts have one more if they do not divide evenly."""
        if total < self.of:
            raise UsageError(f"part = {self}: {total} blocks cannot be divided into {self.of} parts")
        return divided(total, self.of)[self.number - 1]


@dataclass(frozen=True)
class Site:
    """Where some blocks of a study were run."""

    part: Part
    blocks: tuple[int, ...]
    environment: Mapping[str, Any]  # as the part's own folder had it

    @property
    def name(self) -> str:
        """``part 2``, with the context of its cluster, or the beginning of the cluster's id."""
        testbed = self.environment.get("testbed")
        reported = testbed if isinstance(testbed, Mapping) else {}
        where = str(reported.get("context") or str(reported.get("cluster") or "")[:8])
        return f"part {self.part.number}" + (f" ({where})" if where else "")


def described(part: Part, plan: Plan) -> dict[str, Any]:
    """Return the description of a part for ``environment.json``."""
    return {"number": part.number, "of": part.of, "blocks": list(part.blocks(plan.study.blocks))}


def part_of(plan: Plan, environment: Mapping[str, Any]) -> Part | None:
    """Return the part that a folder holds; None if it holds all blocks.

    RecordError if its description is not that of a part of this plan.
    """
    recorded = environment.get("part")
    if recorded is None:
        return None
    with contextlib.suppress(UsageError, *SHAPE_ERRORS):
        part = Part.parse(f"{recorded['number']}/{recorded['of']}")
        if described(part, plan) == dict(recorded):
            return part
    raise _refused(recorded)


def blocks_here(plan: Plan, environment: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the blocks of the plan that are run in this folder."""
    part = part_of(plan, environment)
    return tuple(part.blocks(plan.study.blocks) if part else range(1, plan.study.blocks + 1))


def places(plan: Plan, environment: Mapping[str, Any]) -> tuple[Site, ...]:
    """Return the places of a merged study; empty for a study that was run in one place."""
    listed = environment.get("parts")
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise _refused(listed)
    several = []
    for one in listed:
        part = part_of(plan, one)
        if part is None:
            raise _refused(one)
        several.append(Site(part, tuple(part.blocks(plan.study.blocks)), one))
    return tuple(several)


def session_of_block(plan: Plan, environment: Mapping[str, Any]) -> dict[int, str]:
    """Return the name of the session or place of each block; empty for a study of one session in one place."""
    if merged := places(plan, environment):
        return {block: place.name for place in merged for block in place.blocks}
    sessions = enumerate(plan.sessions, start=1) if plan.study.sessions > 1 else ()
    return {block: f"session {number}" for number, blocks in sessions for block in blocks}


def _refused(recorded: object) -> RecordError:
    return RecordError(f"environment.json: {shortened(recorded)} is not a part of this plan; restore it from a backup")
