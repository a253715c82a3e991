"""Warnings are data: a result carries them, a report prints them, nobody has to read a log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Warning:
    """Something a reader of the result must know.

    Attributes
    ----------
    code : str
        Stable, machine-readable name such as ``"below-floor"``.
    message : str
        What was seen, and what to do next.
    """

    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
