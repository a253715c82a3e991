"""Whether the verdicts of a study can be trusted: six checks.

A check is a fact: the number that decides it, what that number is held against, and what to do where it is not fine.
Templates lay checks out for pages and terminals. Every warning of a primary contrast stands in the details of one
check; one that belongs to none stands with the limits (`limits.py`). Checks change no verdict.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial import stats
from meshtrial.inference import ended
from meshtrial.inference.diagnosis import drift_of
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import part_of
from meshtrial.records.schema import MACHINE_GATES, RunRecord, VerdictRow
from meshtrial.records.tables import Inclusion, is_result
from meshtrial.report import frames, wording
from meshtrial.stats.verdict import block_count
from meshtrial.vocabulary import COARSE_QUANTILE, NO_TWIN, VerdictLabel

Kind = Literal["twin", "runs", "machine", "drift", "blocks", "power", "limits"]
State = Literal["fine", "attention", "problem", "unknown"]
# What a reader calls a check, and what it asks.
KINDS: dict[Kind, tuple[str, str]] = {
    "twin": ("A/A twin", "Does the study find a difference where there is none?"),
    "runs": ("Runs that counted", "Do the verdicts use the runs that were planned?"),
    "machine": ("Machine", "Did other programs, or the machine's host, take the CPU while runs were measured?"),
    "drift": ("Stability over time", "Did runs change over the study, with their order, or with warm-up?"),
    "blocks": ("Independent blocks", "Do differences of neighbouring blocks resemble each other? No test holds then."),
    "power": ("Detectable effect", "Would the study have found an effect as large as the margin, 4 times in 5?"),
    "limits": ("Limits", "What no check can mend. docs/reference/verdicts.md says what to do about each check."),
}
# Of a state its symbol, the symbol in words, and its colour by name.
SIGNS: dict[State, tuple[str, str, str]] = {
    "fine": ("✓", "fine", "same"),
    "attention": ("!", "doubtful", "open"),
    "problem": ("✕", "failed", "stopped"),
    "unknown": ("?", "unknown", "quiet"),
}
# What may be seen beside drift, by its warning.
_COURSE = {
    "position": "order in the block",
    "carry-over": "carry-over",
    "warm-up": "warm-up",
    "modes": "two kinds of runs",
    "baseline-modes": "two states of the machine",
}
# The check in whose details a warning stands, by the warning's code.
KIND_OF: dict[str, Kind] = {
    **dict.fromkeys(("aa-differs", "noise-floor", NO_TWIN), "twin"),
    **dict.fromkeys(("blocks-excluded", "ranked-worst"), "runs"),
    **dict.fromkeys(("drift", *_COURSE), "drift"),
    **dict.fromkeys(("autocorrelation", "dependent-blocks", "places-differ", "places-too-few"), "blocks"),
    **dict.fromkeys(("below-floor", "tests-disagree", "influential-block", "zeros", "repeated-values"), "power"),
    COARSE_QUANTILE: "power",
}
# Less is not worth a sentence: a run bears 5 % of late sends, and a short theft makes only some sends late.
_STOLEN = 0.02


@dataclass(frozen=True)
class Check:
    """One question about a study, answered."""

    kind: Kind
    state: State
    value: str  # the number that decides; empty where there is none
    denominator: str  # what it is a part of, or held against
    sentence: str  # what was found
    advice: str = ""  # what to do; empty where nothing is to be done
    details: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name for a reader."""
        return KINDS[self.kind][0]

    @property
    def sign(self) -> tuple[str, str, str]:
        """The symbol of its state, the symbol in words, and its colour by name."""
        return SIGNS[self.state]

    @property
    def question(self) -> str:
        """What it asks, over its details."""
        return KINDS[self.kind][1]


def checks(data: StudyData) -> tuple[Check, ...]:
    """The six checks, in the order in which they are read."""
    rows = frames.contrasts(data, primary=True, family="").rows
    made = (_twin(data), _runs(data), _machine(data), _drift(data, rows), _blocks(rows), _power(data, rows))
    return tuple(with_warnings(check, rows) for check in made)


def tally(found: Sequence[Check]) -> str:
    """How many checks are fine, and what the others are."""
    counts = Counter(check.sign[1] for check in found)
    others = [f"{counts[word]} {word}" for word in ("failed", "doubtful", "unknown") if counts[word]]
    fine = f"{counts['fine']} of {len(found)} checks are fine"
    return f"{fine}, {wording.listing(others)}" if others else f"all {len(found)} checks are fine"


def with_warnings(check: Check, rows: Sequence[VerdictRow]) -> Check:
    """The check with those warnings in its details that belong to it."""
    codes = {warning.code for row in rows for warning in row.warnings}
    mine = {code for code in codes if KIND_OF.get(code, "limits") == check.kind}
    return replace(check, details=(*check.details, *wording.warnings(rows, mine)))


def number_of(count: int, what: str) -> str:
    """So many of something: ``1 run``, ``2 runs``."""
    return f"{wording.count(count)} {what}{'s' * (count != 1)}"


def _at(data: StudyData, row: VerdictRow) -> str:
    """Of which response and load a number is, by the first words of the response's name."""
    several = len(data.plan.study.loads) > 1
    name = wording.known(row.response).label.partition(",")[0].removesuffix(" latency")
    return f"at {name}" + (f", {row.load}" if several else "")


def _against_margin(data: StudyData, row: VerdictRow) -> str:
    """Of which response a number is, and the margin on the scale of its verdict."""
    if row.margin is None:
        return _at(data, row)
    shown = wording.in_unit(row.response, row.margin) if row.by_difference else wording.rounded_percent(row.margin)
    return f"{_at(data, row)} (margin {shown})"


def _in_margins(row: VerdictRow, size: float | None) -> float:
    """A size on the scale of a row's verdict, in margins."""
    return 0.0 if size is None else math.inf if not row.margin else abs(size) / row.margin


def _effect(row: VerdictRow) -> float | None:
    if row.by_difference or row.ratio is None:
        return row.difference if row.by_difference else None
    return math.expm1(abs(math.log(row.ratio)))


def _twin(data: StudyData) -> Check:
    """The study's own A/A test: the baseline deployed a second time."""
    study, contrasts = data.plan.study, frames.contrasts(data, primary=True, family="")
    if study.twin is None:
        none = "This study has no A/A twin: nothing in it shows how large its own noise is."
        return Check("twin", "unknown", "", "", "not deployed", "plan the next study with a twin", (none,))
    rows = [row for row in contrasts.rows if row.twin and contrasts.reported(row)]
    rows = [row for row in rows if row.verdict is not VerdictLabel.PROVISIONAL]
    if not rows:
        return Check("twin", "unknown", "", "", f"{study.twin.name} has no verdict yet")
    called = [row for row in rows if row.verdict.different]
    tested = [row for row in rows if row.verdict.conclusive or row.verdict is VerdictLabel.INCONCLUSIVE]
    untested = wording.listing([f"{row.verdict} {_at(data, row)}" for row in rows if row not in tested])
    who, of = f"The A/A twin {study.twin.name}, deployed exactly like {study.baseline.name},", len(tested)
    largest = max(called or tested or rows, key=lambda row: _in_margins(row, _effect(row)))
    number = (wording.effect(largest), _against_margin(data, largest)) if largest.n_blocks else ("", "")
    rest = (f"{who} is {untested}: nothing shows there how large the study's own noise is.",) if untested else ()
    if called:
        words = wording.listing([f"{row.verdict} {_at(data, row)}" for row in called])
        counted = f"{len(called)} of {number_of(of, 'contrast')} called different"
        said = f"{who} was called {words}. At the study's error level this happens by chance now and then."
        advice = "repeat the study before acting on effects of that size"
        return Check("twin", "problem", *number, counted, advice, (said, *rest))
    if not tested:
        return Check("twin", "unknown", *number, untested, "repeat the study on a quieter machine", rest)
    each = ", ".join(f"{wording.effect(row)} {_at(data, row)}" for row in tested if row.n_blocks)
    said = f"{who} was not called different from it in {of} of {number_of(len(rows), 'contrast')} ({each})."
    shaken = untested or any(wording.warned(row, "aa-differs", "noise-floor", NO_TWIN) for row in rows)
    shaken = shaken or _in_margins(largest, _effect(largest)) > 1
    advice = "take smaller effects for noise; repeat the study on a quieter machine" if shaken else ""
    state: State = "attention" if shaken else "fine"
    counted = "not called different" + (f" in {of} of {number_of(len(rows), 'contrast')}" if untested else "")
    return Check("twin", state, *number, counted, advice, (said, *rest))


def _runs(data: StudyData) -> Check:
    """How many planned runs the verdicts use, and why they use no others."""
    planned, counted = len(data.plan.runs), len(data.included_runs())
    taken = _taken(data).values()
    stopped = {(name, word): None for one in taken for name, word in one.excluded.items()}
    words, blocks = {word for _, word in stopped}, sum(len(one.excluded_blocks) for one in taken)
    of_blocks = sum(len(one.blocks) + len(one.excluded_blocks) + len(one.unfinished) for one in taken)
    part, is_over = part_of(data.plan, data.environment), ended(data.plan, data.runs)
    found = [f"{name} is {word}" for name, word in stopped]
    found += [f"{blocks} of {number_of(of_blocks, 'block')} excluded"] if blocks else []
    state: State = "attention"
    if part or not is_over:
        found.insert(0, f"part {part} of a divided study" if part else "the study is not finished")
        advice = "merge the parts (meshtrial merge)" if part else "finish it: docs/how-to/resume.md"
    elif VerdictLabel.INVALID in words or not counted:
        state, advice = "problem", "mend what the details name and run a new study: docs/troubleshooting.md"
    elif VerdictLabel.SATURATED in words:
        advice = "that the rate was not held is a result; lower the rate to compare latency"
    elif blocks:
        advice = "the verdicts use the other blocks; the details say why"
    else:
        state, advice = "fine", ""
    if counted < planned and not found:
        found.append("the stopping rule ended the study" if taken else "a part of the study is shown")
    sentence = "; ".join(found)
    details = (_rests_on(data), *_attempts(data), *_excluded(data))
    return Check("runs", state, str(counted), f"of {number_of(planned, 'planned run')}", sentence, advice, details)


def _taken(data: StudyData) -> Mapping[str, Inclusion]:
    """Which runs take part at each load; nothing where only some treatments of a study are looked at."""
    whole = {treatment.name for treatment in data.plan.study.treatments} == {run.treatment for run in data.plan.runs}
    return data.inclusions if whole else {}


def _rests_on(data: StudyData) -> str:
    """Blocks, runs and their order."""
    study = data.plan.study
    kept = [(frames.blocks_of(data, load), frames.at(data, load)) for load in frames.loads(data)]
    parts = wording.listing([f"{blocks} of {planned} planned blocks{at}" for (blocks, planned), at in kept])
    order = "one fixed order" if study.order == "sequential" else "a random order of its own"
    fresh = "on deployments that grew within their block" if study.order == "growing" else "each a fresh deployment"
    return (
        f"Based on {parts}, each with every treatment in {order}: {wording.count(len(data.included_runs()))} runs, "
        f"{fresh}. Percentiles are those of a typical run."
    )


def _attempts(data: StudyData) -> list[str]:
    """How many runs were made and failed, and whose failures they were."""
    failed, made = [run for run in data.runs if not run.valid], {run.run_id for run in data.runs}
    planned, attempts = len(data.plan.runs), number_of(len(data.runs), "attempt")
    missing = f"; {wording.count(planned - len(made))} are missing" if len(made) < planned else ""
    lines = [f"{wording.count(len(made))} of {wording.count(planned)} planned runs were made{missing}."]
    if not failed:
        return [*lines, f"All {attempts} passed every check."] if made else lines
    others = Counter(run.treatment for run in failed if not _of_machine(run))
    total = others.total()
    lines.append(
        f"{wording.count(len(failed))} of {attempts} failed: {len(failed) - total} a check of the machine or the load "
        f"generator, {total} other checks alone."
    )
    if total > 1 and 2 * max(others.values()) > total:
        name, count = others.most_common(1)[0]
        lines.append(f"{count} of these {total} are attempts of {name}: this says something about that treatment.")
    repeated = {run.run_id for run in data.runs if run.attempt > 1}
    passed = len({run.run_id for run in data.runs if run.valid} & repeated)
    lines += [f"{passed} of {number_of(len(repeated), 'run')} passed when repeated in the block."] if repeated else []
    if results := sum(is_result(data.plan, run) for run in failed):
        lines.append(
            f"{results} of {number_of(len(failed), 'failure')} may be the treatment's own (rate, late sends, errors): "
            "results, which are not repeated, and ranked behind every other latency of the block."
        )
    return lines


def _of_machine(run: RunRecord) -> set[str]:
    return {gate.name for gate in run.failed_gates} & MACHINE_GATES


def _excluded(data: StudyData) -> list[str]:
    """Treatments and blocks that are excluded, each with its reason."""
    lines = []
    for load, taken in _taken(data).items():
        at = frames.at(data, load)
        for name, word in taken.excluded.items():
            mine = [run for (_, treatment), run in taken.chosen.items() if treatment == name]
            reasons = Counter(reason for run in mine if not run.valid for reason in run.reasons).most_common(6)
            why = "; ".join(f"{reason} ({number_of(count, 'run')})" for reason, count in reasons)
            failed = f"{sum(not run.valid for run in mine)} of {number_of(len(mine), 'run')} failed"
            lines.append(f"{name}{at} is excluded as a whole ({word}): {failed}. {why}.")
        for block, runs in taken.excluded_blocks.items():
            why = "; ".join(f"{run.treatment}: {', '.join(run.reasons)}" for run in runs)
            lines.append(f"Block {block}{at} is excluded for every treatment. {why}.")
    return lines


def _machine(data: StudyData) -> Check:
    """What other programs and the machine's host took while runs were measured."""
    runs, limit = data.included_runs(), data.plan.study.gates.foreign_load
    foreign, stolen = (
        [run.responses[name] for run in runs if name in run.responses] for name in ("foreign_load", "machine_stolen")
    )
    failing = [names for run in data.runs if (names := _of_machine(run))]
    failed = Counter(name for names in failing for name in names)
    attempts, details = number_of(len(data.runs), "attempt"), _stolen(data.runs)
    details += [f"{count} of {attempts} failed the check {name}." for name, count in failed.items()]
    details += [f"Other programs were measured in {len(foreign)} of {number_of(len(runs), 'run')} that counted."]
    most = wording.in_unit("machine_stolen", max(stolen, default=None))
    if foreign:
        value, held = wording.in_unit("foreign_load", max(foreign)), wording.declared_percent(limit or 0.0)
        number = (value, "of CPU to other programs" + (f" (limit {held})" if limit else ""))
        found = [f"{most} to the host"] if stolen else []
    else:
        number = (most, "of CPU to the host") if stolen else ("", "")
        found = ["other programs are not measured here"]
    found += [f"{len(failing)} of {attempts} failed"] if failed else []
    state: State = "attention" if failed or max(stolen, default=0.0) >= _STOLEN else "fine"
    if "foreign load" in failed:
        advice = "end other programs (top shows them), or measure on a machine of its own"
    elif failed:
        advice = "give the load generator more cores or more generators, or lower the rate"
    elif state == "attention":
        advice = "measure on a machine whose host is not shared, or for longer"
    else:
        state, advice = (state, "") if foreign or stolen else ("unknown", "judge noise by the twin")
    return Check("machine", state, *number, "; ".join(found), advice, tuple(details))


def _stolen(runs: Sequence[RunRecord]) -> list[str]:
    """Time that a virtual machine's host gave to others, where it is enough to spoil runs."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for run in runs:
        if "machine_stolen" in run.responses:
            shares[run.valid].append(run.responses["machine_stolen"])
    worst = max((*shares[True], *shares[False]), default=0.0)
    medians = [
        f"{wording.in_unit('machine_stolen', statistics.median(own))} in {number_of(len(own), 'attempt')} that {did}"
        for own, did in ((shares[True], "passed"), (shares[False], "failed"))
        if own
    ]
    most = wording.in_unit("machine_stolen", worst)
    line = (
        f"The machine's host took up to {most} of the CPU time while a run was measured (median {', '.join(medians)})"
    )
    return [f"{line}: noise of the machine, whatever the treatment."] if worst >= _STOLEN else []


def _drift(data: StudyData, rows: Sequence[VerdictRow]) -> Check:
    """How far runs moved from the first to the last, and whether their order, warm-up or kind made a difference."""
    one_each = {(row.load, row.response): row for row in rows if row.baseline_value}.values()
    found = [(row, drift) for row in one_each if (drift := drift_of(data, row.load, row.response))]
    if not found:
        return Check("drift", "unknown", "", "", "too few runs to tell")

    def in_margins(one: tuple[VerdictRow, stats.Drift]) -> float:
        row, change = one[0], math.expm1(abs(one[1].size))
        return _in_margins(row, change * abs(row.baseline_value or 0.0) if row.by_difference else change)

    drifting = [one for one in found if wording.warned(one[0], "drift")]
    largest = max(drifting or found, key=in_margins)
    codes = {warning.code for row in rows if not row.twin for warning in row.warnings}
    others = [words for code, words in _COURSE.items() if code in codes]
    number, sentence = ("0", f"of {number_of(len(found), 'response')} shown to drift"), ""
    if drifting:
        share = wording.margin_share(largest[0])
        held = f" (margin {share})" if share else ""
        sentence = f"{len(drifting)} {number[1]}"
        number = wording.change(math.exp(largest[1].size)), _at(data, largest[0]) + held
    if others:
        sentence = "; ".join(filter(None, (sentence, f"seen: {wording.listing(others)}")))
        advice = "the details say what mends it"
    else:
        advice = "blocks absorb it; look for heat, leaks or growing logs"
    state: State = "attention" if others or (drifting and in_margins(largest) > 1) else "fine"
    return Check("drift", state, *number, sentence, advice if state != "fine" else "")


def _blocks(rows: Sequence[VerdictRow]) -> Check:
    """Whether differences of neighbouring blocks resemble each other, which no exact test survives."""
    judged = [row for row in rows if row.n_blocks and not row.twin]
    most = max((row.n_blocks for row in rows), default=0)
    if most < stats.FEWEST_BLOCKS:
        return Check("blocks", "unknown", str(most), f"of the {stats.FEWEST_BLOCKS} blocks that it takes to tell", "")
    found, places = (sum(wording.warned(row, code) for row in judged) for code in ("dependent-blocks", "places-differ"))
    refused = sum(row.verdict is VerdictLabel.DEPENDENT for row in judged)
    number = str(found), f"of {number_of(len(judged), 'contrast')} depend on the block before"
    sentence = f"{refused} have no verdict for it" if refused else f"{places} differ between places" if places else ""
    if found:
        advice = "pause longer between blocks in a new study, or run more of them"
        return Check("blocks", "problem" if refused else "attention", *number, sentence, advice)
    advice = "read each place for itself" if places else ""
    return Check("blocks", "attention" if places else "fine", *number, sentence, advice)


def _power(data: StudyData, rows: Sequence[VerdictRow]) -> Check:
    """What this study could have found, beside what was declared to matter; and how often such a study errs."""
    judged = [row for row in rows if not row.twin and row.verdict.standing in ("different", "equivalent", "open")]
    middles = []
    for name in data.plan.study.primary:
        sized = sorted((row for row in judged if row.response == name and row.mde), key=lambda row: row.mde or 0.0)
        middles += sized[len(sized) // 2 : len(sized) // 2 + 1]
    is_open = [row for row in judged if row.verdict.standing == "open"]
    needed = max((row.blocks_needed or 0 for row in is_open), default=0)
    advice = f"a new study of {block_count(needed)} blocks would probably do" if needed else ""
    if not middles:
        return Check("power", "unknown", "", "", "no verdict to judge by", advice, tuple(_error_level(data)))
    largest = max(middles, key=lambda row: _in_margins(row, row.mde))
    each = wording.listing([f"{wording.mde_text(row)} {_against_margin(data, row)}" for row in middles])
    details = (f"With this noise, a study of this size detects effects of about {each} with 80 % power.",)
    of = number_of(len(judged), "contrast")
    sentence = f"{len(is_open)} of {of} not settled" if is_open else f"{len(judged)} of {of} settled"
    fragile = [row for row in judged if wording.warned(row, "influential-block", "tests-disagree", COARSE_QUANTILE)]
    if fragile and not is_open:
        sentence += f", {len(fragile)} of them by few blocks or coarse values"
        advice = "repeat the study with more blocks before acting on them"
    state: State = "attention" if is_open or fragile else "fine"
    advice = advice or "the verdicts say why" * bool(is_open)
    number = wording.mde_text(largest), _against_margin(data, largest)
    return Check("power", state, *number, sentence, advice, (*details, *_error_level(data)))


def _error_level(data: StudyData) -> list[str]:
    if not any(row.p_adjusted is not None for row in data.verdicts):
        return []
    study = data.plan.study
    wrong = "among the treatments of one response at one load"
    if len(study.families()) > 1:
        wrong = (
            f"from {study.baseline.name} in one response at one load, and at most as many one between the treatments"
        )
    return [
        f"Where nothing differs, at most {wording.declared_percent(study.alpha)} of such studies call a difference "
        f"{wrong}. Intervals and verdicts come from the same exact test."
    ]
