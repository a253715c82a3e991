"""Sentences that published comparisons draw from their numbers, held against these numbers.

Opinion: two questions are kept apart. Do the printed numbers say it (arithmetic), and could they have shown it
(inference)? The sentences stand in ``data/published/claims.yaml.j2``, and every figure in them is computed there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, StrictUndefined

from meshtrial.articles import published
from meshtrial.articles.published import Settings
from meshtrial.stats.ranktests import FloatArray
from meshtrial.vocabulary import Word

SENTENCES = published.FOLDER / "claims.yaml.j2"


@dataclass(frozen=True)
class Claim:
    """One printed sentence."""

    words: str  # as printed, or in sense where they are not quoted
    place: str
    numbers: str  # what the printed numbers say
    arithmetic: bool | None  # whether they say what the words say; None where no arithmetic can tell
    inference: str  # whether it was shown, and why not
    quoted: bool = True  # others are its sense, or what its comparison rests on

    @property
    def stands(self) -> str:
        """In a word or two."""
        return {True: "as arithmetic only", False: "no", None: "open"}[self.arithmetic]


def claims(settings: Settings) -> tuple[Claim, ...]:
    """Every claim, with the numbers that it rests on."""

    def rows(experiment: str) -> dict[str, Any]:
        return {row.response: row for row in published.repeated(experiment, settings).rows}

    def shown(experiment: str, response: str) -> str:
        row = rows(experiment)[response]
        if row.verdict is not Word.INCONCLUSIVE:
            return f"{row.sentence}, p = {row.p:.2g}"
        return f"not shown: p = {row.p:.2g} at n = {row.n_blocks}; {row.sentence}"

    sentences = Environment(undefined=StrictUndefined)
    sentences.filters["each"] = lambda numbers, form: ", ".join(form.format(number) for number in numbers)
    text = sentences.from_string(SENTENCES.read_text()).render(
        value=published.value, printed=_printed, percent=_percent, rows=rows, shown=shown
    )
    return tuple(Claim(**claim) for claim in yaml.safe_load(text))


def _printed(file: str, *names: str | Iterable[str]) -> FloatArray:
    """The numbers of an experiment, treatment and response; of several, where one of them is a list."""
    listed = [[name] if isinstance(name, str) else name for name in names]
    return np.concatenate([published.values(file, *one) for one in product(*listed)])


def _percent(one: FloatArray | float, other: FloatArray | float) -> FloatArray | float:
    return 100 * (one / other - 1)
