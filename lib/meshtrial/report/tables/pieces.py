"""The parts of a headline's sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A part of a sentence, and how much it weighs: ``strong``, ``quiet``, ``clause`` (starts a line) or nothing."""

    text: str
    weight: str = ""
    tone: str = ""
