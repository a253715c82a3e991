"""The numbers of published comparisons, through the same inference as a study: what ``published.ipynb`` shows.

Opinion: repeated measurements are tested, with the n that was printed. A number that was printed once, or only as a
mean, has no known noise and is only checked as arithmetic. Two questions are asked about each sentence: do the printed
numbers agree with it (arithmetic), and could they have supported it (inference)? Limits: the runs behind a printed
mean, the order of the runs and the discarded runs cannot be recovered.

The rows of one article are computed from its raw files, by `debate`. All others are numbers as printed.

To add an article, put a CSV into this folder, its name into `FILES`, and its sentences into ``claims.yaml.j2``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

import meshtrial as mt
from meshtrial import display

Row: TypeAlias = dict[str, Any]
Numbers: TypeAlias = NDArray[np.float64]

FOLDER = Path(__file__).parent
AMBIENT, LINKERD, SCALE = "ambient_2024.csv", "linkerd_istio_2021.csv", "cpu_at_scale_2019.csv"
FEATURES, SIDECARLESS, DEBATE = "features_2022.csv", "linkerd_ambient_2025.csv", "debate_2025.csv"
FILES = (AMBIENT, LINKERD, SCALE, FEATURES, SIDECARLESS, DEBATE)
SENTENCES = FOLDER / "claims.yaml.j2"
REPEATED = ("details, old app", "details, new app")  # the experiments whose runs were printed one by one
RESPONSES = "p50,p99,mean,p75,p90"
# Conditions of the measurement that are printed with the latencies. They are not outcomes of a treatment.
CONDITIONS = ("achieved_rps", "service_cpu")
IS_REPEATED = pl.col("statistic").str.starts_with("one of ")
RATES = (60, 120, 240, 600, 1200)  # of the sidecar debate, in the order of its runs
OF_DEBATE = {  # the last two are exploratory
    "mesh_cpu": "CPU of the mesh",
    "latency_p50_s": "p50 latency",
    "latency_p99_s": "p99 latency",
    "data_plane_cpu": "CPU of the data plane, exploratory",
    "data_plane_memory": "memory of the data plane, exploratory",
}
DEBATE_UNITS = {"mesh_cpu": "cores", "data_plane_cpu": "cores", "data_plane_memory": "MiB"}  # of the others ms
MOST = 1000  # more pairs than anybody will measure


@dataclass(frozen=True)
class Articles:
    """The transcribed numbers, analysed with one family-wise error rate and one margin.

    The margin is relative for every response and has no absolute floor, because the articles argue in per cent.
    """

    alpha: float = 0.05
    margin: float = 0.05

    def repeated(self, experiment: str) -> mt.Comparison:
        """Return the paired analysis of one experiment whose runs were printed (three pairs)."""
        return self._compared(FOLDER / AMBIENT, {"experiment": experiment})

    def both_apps(self) -> mt.Comparison:
        """Return the analysis of the six pairs of both apps together. It was chosen after the numbers were known."""
        own_names = (pl.format("{} {}", "experiment", name).alias(name) for name in ("run", "block"))
        with TemporaryDirectory() as folder:
            path = Path(folder, "both_apps.csv")
            read(AMBIENT).filter(pl.col("experiment").is_in(REPEATED)).with_columns(own_names).write_csv(path)
            return self._compared(path)

    def debate(self, rps: int) -> mt.Comparison:
        """Return the analysis of the sidecar debate at one rate: five runs each of Linkerd, ambient and an A/A twin."""
        return self._compared(FOLDER / DEBATE, {"experiment": f"debate, {rps} rps"}, "linkerd", ",".join(OF_DEBATE))

    def _compared(
        self, path: Path, where: dict[str, str] | None = None, baseline: str = "none", responses: str = RESPONSES
    ) -> mt.Comparison:
        margin = f"{100 * self.margin:.12g}%,0ms"
        return mt.compare_table(path, baseline, where=where, responses=responses, margin=margin, alpha=self.alpha)

    def sources(self) -> display.Fragment:
        """Return a table of the sources, with the numbers per source and how many of them are of repeated runs."""
        rows = (
            read()
            .group_by("file", "source", "url", maintain_order=True)
            .agg(pl.len().alias("numbers"), IS_REPEATED.sum().alias("of repeated runs"))
        )
        columns: list[display.Column[Row]] = [
            display.Column("file", lambda row: f"data/published/{row['file']}"),
            display.Column("source", lambda row: _link(row["source"], row["url"])),
            display.Column("numbers", lambda row: row["numbers"], numeric=True),
            display.Column("of repeated runs", lambda row: row["of repeated runs"], numeric=True),
        ]
        return display.Table.from_rows("Numbers of the articles", columns, rows.iter_rows(named=True)).fragment()

    def debated(self) -> list[Debated]:
        """Return the contrasts of the sidecar debate, one per response and rate."""
        found = {rps: self.debate(rps).verdicts().rows(named=True) for rps in RATES}
        return [
            Debated(rps, *(row for row in found[rps] if row["response"] == response))
            for response in OF_DEBATE
            for rps in RATES
        ]

    def debate_table(self) -> display.Fragment:
        """Return :meth:`debated` as a table: ambient and the A/A twin, each against Linkerd."""
        columns: list[display.Column[Debated]] = [
            display.Column("rps", lambda one: one.rps, numeric=True),
            display.Column("Linkerd", lambda one: one.median("baseline_value"), numeric=True),
            display.Column("ambient", lambda one: one.median("treatment_value"), numeric=True),
            display.Column("change", lambda one: _interval(one.ambient), numeric=True),
            display.Column("verdict", lambda one: _verdict(one.ambient)),
            display.Column("change of the A/A twin", lambda one: _interval(one.twin), numeric=True),
            display.Column("its verdict", lambda one: _verdict(one.twin)),
        ]
        note = (
            "Five runs against five, not paired. Values are medians of runs, changes are Hodges-Lehmann estimates with "
            "an exact interval. Each row is a family of its own. The smallest possible p is 0.0079; corrected over the "
            "15 rows of primary responses it is 0.12."
        )
        debated = self.debated()
        groups = [OF_DEBATE[one.ambient["response"]] for one in debated]
        return display.Table.from_rows(
            "The sidecar debate, against Linkerd", columns, debated, note, groups=groups
        ).fragment()

    def needed(self) -> list[Needed]:
        """Return how many pairs each repeated response would have needed with the noise of its three pairs."""
        found, half = [], math.log1p(self.margin)
        for experiment in REPEATED:
            verdicts = self.repeated(experiment).verdicts().rows(named=True)
            for name, row in zip(RESPONSES.split(","), verdicts, strict=True):
                # In seconds, as they are compared.
                ambient, none = (
                    1e-3 * np.array(values(AMBIENT, experiment, mesh, name)) for mesh in ("ambient", "none")
                )
                sd, effect = float(np.std(np.log(ambient / none), ddof=1)), abs(math.log(row["ratio"]))
                pairs = partial(mt.blocks_for_difference, sd, alpha=self.alpha)
                for_estimate = pairs(effect) if effect > 1e-9 else None
                for_equivalence = mt.blocks_for_equivalence(sd, half, alpha=self.alpha)
                about = (experiment, row["label"], row["n_blocks"], row["ratio"], sd)
                found.append(Needed(*about, for_estimate, pairs(half), for_equivalence))
        return found

    def pairs_needed(self) -> display.Fragment:
        """Return :meth:`needed` as a table."""
        margin = display.declared_percent(self.margin)
        columns: list[display.Column[Needed]] = [
            display.Column("response", lambda need: need.response),
            display.Column("change", lambda need: display.Cell(display.change(need.ratio), need.ratio), numeric=True),
            display.Column(
                "noise of a pair", lambda need: display.Cell(display.percent(need.sd), need.sd), numeric=True
            ),
            display.Column("pairs printed", lambda need: need.n, numeric=True),
            display.Column("for an effect as printed", lambda need: _pairs(need.for_estimate), numeric=True),
            display.Column(f"for an effect of {margin}", lambda need: _pairs(need.for_margin), numeric=True),
            display.Column(f"for equivalence within {margin}", lambda need: _pairs(need.for_equivalence), numeric=True),
        ]
        note = (
            "Power 0.8, and at least the smallest n of the exact test. The noise is estimated from three pairs and may "
            "be off by a factor of two or more, so these numbers are orders of magnitude."
        )
        needs = self.needed()
        groups = [need.experiment for need in needs]
        return display.Table.from_rows("Pairs needed", columns, needs, note, groups=groups).fragment()

    def printed_once(self, *files: str) -> display.Fragment:
        """Return a table of the numbers without a replicate in these files, or in all, as quotients."""
        columns: list[display.Column[Single]] = [
            display.Column("response", lambda one: f"{one.response}, {one.treatment}"),
            display.Column(
                "baseline → treatment",
                lambda one: (
                    f"{one.baseline} {display.plain(one.baseline_value)} → {display.plain(one.value)} {one.unit}"
                ),
            ),
            display.Column(
                "quotient", lambda one: display.Cell(f"{one.ratio:.2f}{display.TIMES}", one.ratio), numeric=True
            ),
            display.Column("what it is", lambda one: one.statistic),
            display.Column("can be tested", lambda _: "no: it has no replicate"),
        ]
        printed = singles(*files)
        note = "A quotient of two numbers without a known spread has no interval, no p-value and no verdict."
        groups = [one.experiment for one in printed]
        return display.Table.from_rows("Printed once, or as a mean", columns, printed, note, groups=groups).fragment()

    def claims(self) -> display.Fragment:
        """Return a table of the printed sentences and of what the numbers support."""
        columns: list[display.Column[Claim]] = [
            display.Column(
                "claim",
                lambda claim: display.Cell(f"“{claim.words}”" if claim.quoted else claim.words, note=claim.place),
                wide=True,
            ),
            display.Column("the printed numbers", lambda claim: claim.numbers, wide=True),
            display.Column("stands", lambda claim: claim.stands),
            display.Column("shown?", lambda claim: claim.inference, wide=True),
        ]
        return display.Table.from_rows("Printed claims", columns, claims(self)).fragment()


@dataclass(frozen=True)
class Debated:
    """One response of the sidecar debate at one rate: two rows of verdicts, each against Linkerd."""

    rps: int
    ambient: Row
    twin: Row

    def median(self, column: str) -> str:
        """Return a median over the runs of Linkerd (``baseline_value``) or ambient (``treatment_value``), with unit."""
        unit = DEBATE_UNITS.get(self.ambient["response"], "ms")
        return f"{self.ambient[column] * (1e3 if unit == 'ms' else 1):.3g} {unit}"


@dataclass(frozen=True)
class Needed:
    """Pairs that a repeated response would have needed to find an effect, or to show equivalence."""

    experiment: str
    response: str
    n: int  # pairs printed
    ratio: float  # Hodges-Lehmann estimate of ambient over none
    sd: float  # standard deviation of the log ratios, from n pairs only
    for_estimate: int | None  # an effect as large as the estimate; None where that is 1
    for_margin: int  # as large as the margin
    for_equivalence: int  # within the margin


@dataclass(frozen=True)
class Single:
    """A number that was printed without a replicate, and its baseline's."""

    experiment: str
    response: str
    treatment: str
    baseline: str
    value: float
    baseline_value: float
    unit: str
    statistic: str
    source: str

    @property
    def ratio(self) -> float:
        """The quotient of the two numbers. It is not an estimate of an effect."""
        return self.value / self.baseline_value


@dataclass(frozen=True)
class Claim:
    """One printed sentence."""

    words: str  # as printed; a paraphrase if not quoted
    place: str
    numbers: str  # the printed numbers that the sentence is about
    arithmetic: bool | None  # whether they agree with the words; None if arithmetic cannot decide
    inference: str  # whether the data support it, or why they cannot
    quoted: bool = True  # False for a paraphrase or an assumption of the comparison

    @property
    def stands(self) -> str:
        """Whether the sentence holds, in at most three words."""
        return {True: "as arithmetic only", False: "no", None: "open"}[self.arithmetic]


def read(*names: str) -> pl.DataFrame:
    """Return the rows of these files, or of all."""
    unknown = [name for name in names if name not in FILES]
    if unknown:
        raise mt.MeshtrialError(f"{', '.join(unknown)}: not in data/published; there are {', '.join(FILES)}")
    frames = (pl.read_csv(FOLDER / name, infer_schema=False).with_columns(file=pl.lit(name)) for name in names or FILES)
    return pl.concat(frames).with_columns(pl.col("value").cast(pl.Float64))


def values(file: str, experiment: str, treatment: str, response: str) -> list[float]:
    """Return the printed numbers of an experiment in the order of the runs."""
    rows = read(file).filter(experiment=experiment, treatment=treatment, response=response)
    if rows.is_empty():
        raise mt.MeshtrialError(f"{file}: {experiment}, {treatment}, {response} is not printed there")
    return [float(x) for x in rows["value"]]


def value(file: str, experiment: str, treatment: str, response: str) -> float:
    """Return one printed number of a file."""
    column = values(file, experiment, treatment, response)
    if len(column) != 1:
        raise mt.MeshtrialError(f"{file}: {experiment}, {treatment}, {response} is printed {len(column)} times")
    return column[0]


def singles(*names: str) -> list[Single]:
    """Return every number without a replicate that has a counterpart, in these files or in all."""
    rows = read(*names).filter(~IS_REPEATED, ~pl.col("response").is_in(CONDITIONS))
    found = []
    for keys, part in rows.group_by("experiment", "response", maintain_order=True):
        printed = {row["treatment"]: row for row in part.iter_rows(named=True)}
        # Without a number for no mesh, the two meshes are compared, or a feature with its mesh.
        baseline = next((name for name in ("none", "istio") if name in printed), min(printed, key=len))
        for name, row in printed.items():
            if name != baseline:
                about = (row[column] for column in ("unit", "statistic", "source"))
                between = (name, baseline, row["value"], printed[baseline]["value"])
                found.append(Single(str(keys[0]), str(keys[1]), *between, *about))
    return found


def began(treatment: str) -> list[str]:
    """Return when the first and the last run of a treatment of the sidecar debate began, as hours and minutes."""
    notes = read(DEBATE).filter(treatment=treatment)["note"].sort()
    return [note.removeprefix("began ")[11:16] for note in (notes[0], notes[-1])]


def claims(articles: Articles) -> list[Claim]:
    """Return every sentence with the numbers that it is about, each computed from the printed ones."""
    debated = articles.debated()

    def rows(experiment: str) -> dict[str, Row]:
        return {row["response"]: row for row in articles.repeated(experiment).verdicts().rows(named=True)}

    def shown(experiment: str, response: str) -> str:
        row = rows(experiment)[response]
        if row["verdict"] != "inconclusive":
            return f"{row['sentence']}, p = {row['p']:.2g}"
        return f"not significant: p = {row['p']:.2g} at n = {row['n_blocks']}; {row['sentence']}"

    def contrasts(response: str, treatment: str) -> list[Row]:
        return [getattr(one, treatment) for one in debated if one.ambient["response"] == response]

    sentences = Environment(undefined=StrictUndefined)
    sentences.filters["each"] = lambda numbers, form: ", ".join(form.format(number) for number in numbers)
    text = sentences.from_string(SENTENCES.read_text()).render(
        value=value, printed=_printed, percent=_percent, rows=rows, shown=shown, began=began, contrasts=contrasts
    )
    return [Claim(**claim) for claim in yaml.safe_load(text)]


def _printed(file: str, *names: str | Iterable[str]) -> Numbers:
    """Return the numbers of an experiment, treatment and response; each of these may be a list."""
    listed = [[name] if isinstance(name, str) else name for name in names]
    return np.concatenate([values(file, *one) for one in product(*listed)])


def _percent(one: Numbers | float, other: Numbers | float) -> Numbers | float:
    return 100 * (one / other - 1)


def _interval(row: Row) -> display.Cell:
    low, high = (display.change(row[end]) for end in ("ci_low", "ci_high"))
    return display.Cell(f"{display.change(row['ratio'])} ({low} to {high})", row["ratio"])


def _verdict(row: Row) -> str:
    p = row["p_equivalence" if row["verdict"] == "equivalent" else "p"]
    return f"{row['verdict']}, p = {p:.2g}"


def _pairs(count: int | None) -> display.Cell | int | None:
    return display.Cell(f"more than {MOST}", count) if count is not None and count > MOST else count


def _link(text: str, address: str) -> display.Cell:
    return display.Cell(text, html=Markup('<a href="{}">{}</a>').format(address, text))
