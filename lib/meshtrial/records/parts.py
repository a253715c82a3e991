"""Which blocks of a plan lie in a study's folder, and where each of them was run: ``environment.json`` says both.

The folder of one part says ``part``; a merged one has, instead of one place, ``parts``: the description of each place,
with the blocks that were run there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshtrial.design.part import Part
from meshtrial.design.plan import Plan
from meshtrial.errors import RecordError, UsageError
from meshtrial.typed import SHAPE_ERRORS, shortened


@dataclass(frozen=True)
class Place:
    """Where some blocks of a study were run.

    Attributes
    ----------
    part : Part
    blocks : tuple of int
    environment : mapping
        As the part's own folder had it.
    """

    part: Part
    blocks: tuple[int, ...]
    environment: Mapping[str, Any]

    @property
    def name(self) -> str:
        """``part 2``, with the context of its cluster, or the beginning of the cluster's id."""
        testbed = self.environment.get("testbed")
        found = testbed if isinstance(testbed, Mapping) else {}
        where = str(found.get("context") or str(found.get("cluster") or "")[:8])
        return f"part {self.part.number}" + (f" ({where})" if where else "")


def described(part: Part, plan: Plan) -> dict[str, Any]:
    """What ``environment.json`` of a part says of it."""
    return {"number": part.number, "of": part.of, "blocks": list(part.blocks(plan.study.blocks))}


def part_of(plan: Plan, environment: Mapping[str, Any]) -> Part | None:
    """The part that a folder holds; None where it holds all blocks.

    Raises
    ------
    RecordError
        Where what it says of itself is not a part of this plan.
    """
    found = environment.get("part")
    if found is None:
        return None
    with contextlib.suppress(UsageError, *SHAPE_ERRORS):
        part = Part.parse(f"{found['number']}/{found['of']}")
        if described(part, plan) == dict(found):
            return part
    raise _refused(found)


def blocks_here(plan: Plan, environment: Mapping[str, Any]) -> tuple[int, ...]:
    """The blocks of the plan that are run in this folder."""
    part = part_of(plan, environment)
    return tuple(part.blocks(plan.study.blocks) if part else range(1, plan.study.blocks + 1))


def places(plan: Plan, environment: Mapping[str, Any]) -> tuple[Place, ...]:
    """The places of a merged study; none of one that was run in one place."""
    listed = environment.get("parts")
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(one, Mapping) for one in listed):
        raise _refused(listed)
    found = []
    for one in listed:
        part = part_of(plan, one)
        if part is None:
            raise _refused(one)
        found.append(Place(part, tuple(part.blocks(plan.study.blocks)), one))
    return tuple(found)


def place_of_block(plan: Plan, environment: Mapping[str, Any]) -> dict[int, str]:
    """The name of its place by block; empty of a study that was run in one place."""
    return {block: place.name for place in places(plan, environment) for block in place.blocks}


def _refused(found: object) -> RecordError:
    return RecordError(f"environment.json: {shortened(found)} is no part of this plan; restore it from a backup")
