"""Whether the verdicts of a study can be trusted: six checks, and the limits that no check can remove.

A check is data: the number that decides it, what that number is compared with, and what to do if it is not fine.
Templates lay checks out for pages and terminals. Every warning of a primary contrast is listed in the details of one
check; a warning that belongs to no check is listed with the limits. Checks change no verdict.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from meshtrial import stats
from meshtrial.design.responses import MARKED
from meshtrial.inference import ended
from meshtrial.inference.between import earlier, estimate_in
from meshtrial.inference.diagnosis import drift_of
from meshtrial.inference.elasticity import elasticity
from meshtrial.inference.sessions import session_effects, session_names
from meshtrial.records import builds
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import part_of, places
from meshtrial.records.schema import MACHINE_GATES, RunRecord, VerdictRow
from meshtrial.records.tables import Inclusion, is_result
from meshtrial.report import frames, wording
from meshtrial.stats.verdict import block_count
from meshtrial.vocabulary import COARSE_QUANTILE, NO_TWIN, RATE_FAILURES, VerdictLabel

Kind = Literal["twin", "runs", "machine", "drift", "blocks", "power", "limits"]
State = Literal["fine", "attention", "problem", "unknown"]
# The name of each check for readers, and the question that it answers.
KINDS: dict[Kind, tuple[str, str]] = {
    "twin": ("A/A twin", "Does the study find a difference where there is none?"),
    "runs": ("Runs used", "Do the verdicts use the runs that were planned?"),
    "machine": ("Machine", "Did other programs, or the machine's host, take CPU time while runs were measured?"),
    "drift": ("Stability over time", "Did runs change over the study, with their order, or with warm-up?"),
    "blocks": (
        "Independent blocks",
        "Do the differences of neighbouring blocks resemble each other? If so, no test is valid.",
    ),
    "power": (
        "Detectable effect",
        "Are the contrasts settled, and which effects does the study detect with 80 % power?",
    ),
    "limits": ("Limits", "No check can remove these. What to do about each check: docs/reference/verdicts.md."),
}
# Each state's symbol, the symbol in words, and the name of its colour.
SIGNS: dict[State, tuple[str, str, str]] = {
    "fine": ("✓", "fine", "same"),
    "attention": ("!", "doubtful", "open"),
    "problem": ("✕", "failed", "stopped"),
    "unknown": ("?", "unknown", "quiet"),
}
# What the stability check reports beside drift, by the code of its warning.
_COURSE = {
    "position": "order in the block",
    "carry-over": "carry-over",
    "warm-up": "warm-up",
    "modes": "two kinds of runs",
    "baseline-modes": "two states of the machine",
}
# The check that lists a warning in its details, by the warning's code.
KIND_OF: dict[str, Kind] = {
    **dict.fromkeys(("aa-differs", "noise-floor", NO_TWIN), "twin"),
    **dict.fromkeys(("blocks-excluded", "ranked-worst", RATE_FAILURES), "runs"),
    **dict.fromkeys(("drift", *_COURSE), "drift"),
    **dict.fromkeys(("autocorrelation", "dependent-blocks", "places-differ", "places-too-few"), "blocks"),
    **dict.fromkeys(("below-floor", "tests-disagree", "influential-block", "zeros", "repeated-values"), "power"),
    COARSE_QUANTILE: "power",
}
# A smaller share is not reported: a run may have 5 % late sends, and a short interruption makes only some sends late.
_STOLEN = 0.02


@dataclass(frozen=True)
class Check:
    """The answer to one question about a study."""

    kind: Kind
    state: State
    value: str  # the number that decides; empty if there is none
    denominator: str  # what the number is a part of, or is compared with
    sentence: str  # what was found
    advice: str = ""  # what to do; empty if there is nothing to do
    details: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name of the check for readers."""
        return KINDS[self.kind][0]

    @property
    def sign(self) -> tuple[str, str, str]:
        """The symbol of the state, the symbol in words, and the name of its colour."""
        return SIGNS[self.state]

    @property
    def question(self) -> str:
        """The question that the check answers; shown above the details."""
        return KINDS[self.kind][1]


def checks(data: StudyData) -> tuple[Check, ...]:
    """Return the six checks in reading order."""
    rows = frames.contrasts(data, primary=True, between=False).rows
    results = (_twin(data), _runs(data), _machine(data), _drift(data, rows), _blocks(rows), _power(data, rows))
    return tuple(_with_warnings(check, rows) for check in results)


def tally(results: Sequence[Check]) -> str:
    """Return how many checks are fine, and the states of the others."""
    counts = Counter(check.sign[1] for check in results)
    others = [f"{counts[word]} {word}" for word in ("failed", "doubtful", "unknown") if counts[word]]
    fine = f"{counts['fine']} of {len(results)} checks are fine"
    return f"{fine}, {wording.listing(others)}" if others else f"all {len(results)} checks are fine"


def _with_warnings(check: Check, rows: Sequence[VerdictRow]) -> Check:
    """Return the check with the warnings that belong to it added to its details."""
    codes = {warning.code for row in rows for warning in row.warnings}
    own_codes = {code for code in codes if KIND_OF.get(code, "limits") == check.kind}
    return replace(check, details=(*check.details, *wording.warnings(rows, own_codes)))


def number_of(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``2 runs``."""
    return f"{wording.count(count)} {noun}{'s' * (count != 1)}"


def _at(data: StudyData, row: VerdictRow) -> str:
    """Return the response (by the start of its label) and, in a study of several loads, the load of a number."""
    name = wording.known(row.response).label.partition(",")[0]
    where = f"at {name.removesuffix(' latency')}" if row.response.startswith("latency_") else f"in {name}"
    return ", ".join(filter(None, (where, frames.load_title(data, row.load))))


def _against_margin(data: StudyData, row: VerdictRow) -> str:
    """Return the response of a number and the margin on the scale of its verdict."""
    if row.margin is None:
        return _at(data, row)
    margin = wording.in_unit(row.response, row.margin) if row.by_difference else wording.rounded_percent(row.margin)
    return f"{_at(data, row)} (margin {margin})"


def _in_margins(row: VerdictRow, size: float | None) -> float:
    """Return an effect, on the scale of the row's verdict, as a multiple of the margin."""
    return 0.0 if size is None else math.inf if not row.margin else abs(size) / row.margin


def _effect(row: VerdictRow) -> float | None:
    if row.by_difference:
        return row.difference
    return None if row.ratio is None else math.expm1(abs(math.log(row.ratio)))


def _twin_verdict(data: StudyData, row: VerdictRow) -> str:
    numbers = f" ({wording.effect(row)}, {wording.effect_interval(row)})" if row.n_blocks else ""
    return f"{row.verdict} {_at(data, row)}{numbers}"


def _twin(data: StudyData) -> Check:
    study, contrasts = data.plan.study, frames.contrasts(data, primary=True, between=False)
    if study.twin is None:
        none = "This study has no A/A twin, so nothing in it shows how large its noise is."
        return Check("twin", "unknown", "", "", "not deployed", "include a twin in the next study", (none,))
    rows = [row for row in contrasts.rows if row.twin and contrasts.reported(row)]
    rows = [row for row in rows if row.verdict is not VerdictLabel.PROVISIONAL]
    if not rows:
        return Check("twin", "unknown", "", "", f"{study.twin.name} has no verdict yet")
    called = [row for row in rows if row.verdict.different]
    # Too few blocks cannot call anything different.
    few = [row for row in rows if row.verdict is VerdictLabel.INCONCLUSIVE and wording.warned(row, "below-floor")]
    tested = [row for row in rows if row.verdict.conclusive or row.verdict is VerdictLabel.INCONCLUSIVE]
    tested = [row for row in tested if row not in few]
    untested = wording.listing([_twin_verdict(data, row) for row in rows if row not in tested])
    who, of = f"The A/A twin {study.twin.name}, deployed exactly like {study.baseline.name},", len(tested)
    largest = max(called or tested or rows, key=lambda row: _in_margins(row, _effect(row)))
    number = (wording.effect(largest), _against_margin(data, largest)) if largest.n_blocks else ("", "")
    rest = (f"{who} is {untested}: this does not test the study's noise.",) if untested else ()
    if called:
        words = wording.listing([f"{row.verdict} {_at(data, row)}" for row in called])
        counted = f"{len(called)} of {number_of(of, 'contrast')} called different"
        line = f"{who} was called {words}. At the study's error level this happens by chance now and then."
        advice = "run one new study before acting on effects of that size"
        return Check("twin", "problem", *number, counted, advice, (line, *rest))
    if not tested:
        words = wording.listing(list(dict.fromkeys(row.verdict for row in rows)))
        advice = f"run one new study {'with more blocks' if few else 'on a quieter machine'}"
        return Check("twin", "unknown", *number, words, advice, rest)
    line = f"{who} is {wording.listing([_twin_verdict(data, row) for row in tested])}."
    is_noisy = untested or any(wording.warned(row, "aa-differs", "noise-floor", NO_TWIN) for row in rows)
    is_noisy = is_noisy or _in_margins(largest, _effect(largest)) > 1
    advice = "treat smaller effects as noise; run one new study on a quieter machine" if is_noisy else ""
    state: State = "attention" if is_noisy else "fine"
    counts = Counter(row.verdict for row in tested)
    every = len(counts) == 1 and not untested
    counted = wording.listing([f"{word}{'' if every else f' in {times}'}" for word, times in counts.items()])
    counted += "" if every else f" of {number_of(len(rows), 'contrast')}"
    return Check("twin", state, *number, counted, advice, (line, *rest))


def _runs(data: StudyData) -> Check:
    planned, counted = len(data.plan.runs), len(data.included_runs())
    inclusions = _inclusions(data).values()
    excluded = {(name, word): None for one in inclusions for name, word in one.excluded.items()}
    words, blocks = {word for _, word in excluded}, sum(len(one.excluded_blocks) for one in inclusions)
    all_blocks = sum(len(one.blocks) + len(one.excluded_blocks) + len(one.unfinished) for one in inclusions)
    part, is_over = part_of(data.plan, data.environment), ended(data.plan, data.runs)
    # Whether it is saturated is tested for each contrast.
    findings = [
        f"{name} {'missed the rate' if word == VerdictLabel.SATURATED else 'is invalid'}" for name, word in excluded
    ]
    findings += [f"{blocks} of {number_of(all_blocks, 'block')} excluded"] if blocks else []
    state: State = "attention"
    if part or not is_over:
        findings.insert(0, f"part {part} of a divided study" if part else "the study is not finished")
        advice = "merge the parts (meshtrial merge)" if part else "finish it: docs/how-to/long-studies.md"
    elif VerdictLabel.INVALID in words or not counted:
        state, advice = "problem", "fix what the details name and run a new study: docs/troubleshooting.md"
    elif VerdictLabel.SATURATED in words:
        advice = "that the rate was not reached is a result; lower the rate to compare latency"
    elif blocks:
        advice = "the verdicts use the other blocks; the details say why"
    else:
        state, advice = "fine", ""
    if counted < planned and not findings:
        findings.append("the stopping rule ended the study" if inclusions else "only a part of the study is shown")
    details = (_evidence_line(data), *_attempts(data), *_excluded(data))
    denominator = f"of {number_of(planned, 'planned run')}"
    return Check("runs", state, str(counted), denominator, "; ".join(findings), advice, details)


def _inclusions(data: StudyData) -> Mapping[str, Inclusion]:
    """Return which runs take part at each load; nothing if only some treatments of the study are shown."""
    whole = {treatment.name for treatment in data.plan.study.treatments} == {run.treatment for run in data.plan.runs}
    return data.inclusions if whole else {}


def _evidence_line(data: StudyData) -> str:
    study = data.plan.study
    kept = [(frames.blocks_of(data, load), frames.at(data, load)) for load in frames.loads(data)]
    parts = wording.listing([f"{blocks} of {planned} planned blocks{at}" for (blocks, planned), at in kept])
    order = "one fixed order" if study.order == "sequential" else "a random order of its own"
    fresh = "on deployments that grew within their block" if study.order == "growing" else "each a new deployment"
    return (
        f"Based on {parts}, each with every treatment in {order}: {wording.count(len(data.included_runs()))} runs, "
        f"{fresh}. Percentiles are those of a typical run."
    )


def _failed_on_machine(run: RunRecord) -> set[str]:
    return {gate.name for gate in run.failed_gates} & MACHINE_GATES


def _attempts(data: StudyData) -> list[str]:
    """Return how many runs were made, how many failed, and whether the machine or the treatment may be the cause."""
    failed, made = [run for run in data.runs if not run.valid], {run.run_id for run in data.runs}
    planned, attempts = len(data.plan.runs), number_of(len(data.runs), "attempt")
    missing = f"; {wording.count(planned - len(made))} are missing" if len(made) < planned else ""
    lines = [f"{wording.count(len(made))} of {wording.count(planned)} planned runs were made{missing}."]
    if not failed:
        return [*lines, f"All {attempts} passed every check."] if made else lines
    others = Counter(run.treatment for run in failed if not _failed_on_machine(run))
    total = others.total()
    lines.append(
        f"{wording.count(len(failed))} of {attempts} failed: {len(failed) - total} failed a check of the machine or "
        f"the load generator, {total} failed only other checks."
    )
    ((name, count),) = others.most_common(1) or [("", 0)]
    if total > 1 and 2 * count > total:
        lines.append(f"{name} accounts for {count} of the {total} failures that the machine did not cause.")
    repeated = {run.run_id for run in data.runs if run.attempt > 1}
    passed = len({run.run_id for run in data.runs if run.valid} & repeated)
    lines += [f"{passed} of {number_of(len(repeated), 'repeated run')} passed."] if repeated else []
    if results := sum(is_result(data.plan, run) for run in failed):
        lines.append(
            f"The treatment may be the cause of {results} of {number_of(len(failed), 'failure')} (rate, late sends or "
            "errors). Such a run is a result: it is not repeated, and its latency ranks last in its block."
        )
    return lines


def _excluded(data: StudyData) -> list[str]:
    lines = []
    for load, inclusion in _inclusions(data).items():
        at = frames.at(data, load)
        for name in inclusion.excluded:
            runs = [run for (_, treatment), run in inclusion.chosen.items() if treatment == name]
            reasons = Counter(reason for run in runs if not run.valid for reason in run.reasons).most_common(6)
            why = "; ".join(f"{reason} ({number_of(count, 'run')})" for reason, count in reasons)
            failed = f"{sum(not run.valid for run in runs)} of {number_of(len(runs), 'run')} failed"
            lines.append(f"{name}{at} is excluded entirely: {failed}. {why}.")
        for block, failed_runs in inclusion.excluded_blocks.items():
            why = "; ".join(f"{run.treatment}: {', '.join(run.reasons)}" for run in failed_runs)
            lines.append(f"Block {block}{at} is excluded for every treatment. {why}.")
    return lines


def _machine(data: StudyData) -> Check:
    runs, limit = data.included_runs(), data.plan.study.gates.foreign_load
    foreign, stolen = (
        [run.responses[name] for run in runs if name in run.responses] for name in ("foreign_load", "machine_stolen")
    )
    failing = [names for run in data.runs if (names := _failed_on_machine(run))]
    failed = Counter(name for names in failing for name in names)
    attempts, details = number_of(len(data.runs), "attempt"), _stolen(data.runs)
    details += [f"{count} of {attempts} failed the check {name}." for name, count in failed.items()]
    details += [f"Other programs were measured in {len(foreign)} of {number_of(len(runs), 'used run')}."]
    most = wording.in_unit("machine_stolen", max(stolen, default=None))
    if foreign:
        value, allowed = wording.in_unit("foreign_load", max(foreign)), wording.declared_percent(limit or 0.0)
        number = (value, "of CPU to other programs" + (f" (limit {allowed})" if limit else ""))
        findings = [f"{most} to the host"] if stolen else []
    else:
        number = (most, "of CPU to the host") if stolen else ("", "")
        findings = ["other programs are not measured here"]
    findings += [f"{len(failing)} of {attempts} failed"] if failed else []
    state: State = "attention" if failed or max(stolen, default=0.0) >= _STOLEN else "fine"
    if "foreign load" in failed:
        advice = "end other programs (top lists them), or use a machine of its own"
    elif failed:
        advice = "give the load generator more cores or more generators, or lower the rate"
    elif state == "attention":
        advice = "measure on a machine whose host is not shared, or for longer"
    else:
        state, advice = (state, "") if foreign or stolen else ("unknown", "judge noise by the twin")
    return Check("machine", state, *number, "; ".join(findings), advice, tuple(details))


def _stolen(runs: Sequence[RunRecord]) -> list[str]:
    """Return a line on CPU time that the host of a virtual machine gave to others, if it can invalidate runs."""
    measured = [(run.responses["machine_stolen"], run.valid) for run in runs if "machine_stolen" in run.responses]
    worst = max((share for share, _ in measured), default=0.0)
    if worst < _STOLEN:
        return []
    medians = [
        f"{wording.in_unit('machine_stolen', statistics.median(shares))} in {number_of(len(shares), 'attempt')} {kind}"
        for kind, passed in (("that passed", True), ("that failed", False))
        if (shares := [share for share, valid in measured if valid == passed])
    ]
    return [
        f"The machine's host took up to {wording.in_unit('machine_stolen', worst)} of the CPU time while a run was "
        f"measured (median {', '.join(medians)}): noise of the machine, whatever the treatment."
    ]


def _drift(data: StudyData, rows: Sequence[VerdictRow]) -> Check:
    row_of_response = {(row.load, row.response): row for row in rows if row.baseline_value}
    drifts = [(row, drift) for row in row_of_response.values() if (drift := drift_of(data, row.load, row.response))]
    if not drifts:
        return Check("drift", "unknown", "", "", "too few runs to estimate drift")

    def in_margins(pair: tuple[VerdictRow, stats.Drift]) -> float:
        row, change = pair[0], math.expm1(abs(pair[1].size))
        return _in_margins(row, change * abs(row.baseline_value or 0.0) if row.by_difference else change)

    drifting = [pair for pair in drifts if wording.warned(pair[0], "drift")]
    row, drift = largest = max(drifting or drifts, key=in_margins)
    codes = {warning.code for row in rows if not row.twin for warning in row.warnings}
    others = [words for code, words in _COURSE.items() if code in codes]
    number, sentence = ("0", f"of {number_of(len(drifts), 'response')} shown to drift"), ""
    if drifting:
        share = wording.margin_share(row)
        sentence = f"{len(drifting)} {number[1]}"
        number = wording.change(math.exp(drift.size)), _at(data, row) + (f" (margin {share})" if share else "")
    if others:
        sentence = "; ".join(filter(None, (sentence, f"found: {wording.listing(others)}")))
        advice = "the details say what to change"
    else:
        advice = "blocks absorb it; look for heat, leaks or growing logs"
    state: State = "attention" if others or (drifting and in_margins(largest) > 1) else "fine"
    return Check("drift", state, *number, sentence, advice if state != "fine" else "")


def _blocks(rows: Sequence[VerdictRow]) -> Check:
    judged = [row for row in rows if row.n_blocks and not row.twin]
    most = max((row.n_blocks for row in rows), default=0)
    counted = judged[0].counted if judged else "blocks"
    if most < stats.FEWEST_BLOCKS:
        needs = f"of the {stats.FEWEST_BLOCKS} {counted} that this check needs"
        return Check("blocks", "unknown", str(most), needs, "")
    dependent, differing = (
        sum(wording.warned(row, code) for row in judged) for code in ("dependent-blocks", "places-differ")
    )
    refused = sum(row.verdict is VerdictLabel.DEPENDENT for row in judged)
    number = str(dependent), f"of {number_of(len(judged), 'contrast')} depend on the previous {counted[:-1]}"
    sentence = f"{differing} differ between places or sessions" if differing else ""
    if refused:
        sentence = f"{refused} therefore have no verdict"
    if dependent:
        advice = f"pause longer between {counted} in a new study, or run more of them"
        return Check("blocks", "problem" if refused else "attention", *number, sentence, advice)
    advice = "read the result of each place or session separately" if differing else ""
    return Check("blocks", "attention" if differing else "fine", *number, sentence, advice)


def _power(data: StudyData, rows: Sequence[VerdictRow]) -> Check:
    judged = [row for row in rows if not row.twin and row.verdict.standing in ("different", "equivalent", "open")]
    middles = []
    for name in data.plan.study.primary:
        sized = sorted((row for row in judged if row.response == name and row.mde), key=lambda row: row.mde or 0.0)
        middles += sized[len(sized) // 2 : len(sized) // 2 + 1]
    is_open = [row for row in judged if row.verdict.standing == "open"]
    needed = max((row.blocks_needed or 0 for row in is_open), default=0)
    counted = is_open[0].counted if is_open else "blocks"
    advice = (
        f"a new study of {block_count(needed)} {counted} would probably settle the open contrasts" if needed else ""
    )
    if not middles:
        return Check("power", "unknown", "", "", "there is no verdict yet", advice, tuple(_error_level(data)))
    largest = max(middles, key=lambda row: _in_margins(row, row.mde))
    each = wording.listing([f"{wording.mde_text(row)} {_against_margin(data, row)}" for row in middles])
    details = (f"With this noise, a study of this size detects effects of about {each} with 80 % power.",)
    of = number_of(len(judged), "contrast")
    sentence = f"{len(is_open)} of {of} not settled" if is_open else f"{len(judged)} of {of} settled"
    fragile = [row for row in judged if wording.warned(row, "influential-block", "tests-disagree", COARSE_QUANTILE)]
    if fragile and not is_open:
        sentence += f", {len(fragile)} of them by few blocks or coarse values"
        advice = "run one new study with more blocks before acting on them"
    state: State = "attention" if is_open or fragile else "fine"
    advice = advice or "the verdicts say why" * bool(is_open)
    number = wording.mde_text(largest), _against_margin(data, largest)
    return Check("power", state, *number, sentence, advice, (*details, *_error_level(data)))


def _error_level(data: StudyData) -> list[str]:
    study = data.plan.study
    if not any(row.p_adjusted is not None for row in data.verdicts):
        return []
    wrong = "among the treatments of one response at one load"
    if len(study.families()) > 1:
        wrong = f"from {study.baseline.name} in one response at one load, and at most as many between two treatments"
    return [
        f"If treatments do not differ, at most {wording.declared_percent(study.alpha)} of such studies call a "
        f"difference {wrong}.",
        "Intervals come from the same exact tests without that correction. A row is marked if its interval excludes "
        "zero by itself and nothing was called after correction.",
    ]


_LOCAL = (
    "The treatments with a proxy are reference data planes built from plain Envoy on one machine. They show what an "
    "architecture or a feature costs there. They do not measure any mesh product.",
    "Everything runs on one machine over loopback. There is no network between client and server, and load generator, "
    "proxies and app share the same cores. Added milliseconds are valid for such a machine. On a cluster the path is "
    "longer, so the same percentage is a different number of milliseconds.",
)
_CLUSTER = ("The verdicts are valid for this cluster, these versions, this placement and this load.",)
_ONE_SESSION = (
    "An interval describes this session only. How much the result changes on another day, or in another state of the "
    "machine, is shown by more sessions (the parameter sessions) or by another study (meshtrial compare)."
)
_TRAVELS = (
    "Which number holds elsewhere: the ratio agreed between machines as long as no treatment was near its limit, where "
    "ratios of latency grow. In nine sessions on one machine, the added CPU of a sidecar varied by 4 % and its ratio "
    "by 31 %, those of a node proxy by 33 and 11 %."
)
_SESSIONS = {
    "block": "An interval describes the sessions of this study. With three or more, the table of sessions predicts "
    "what another one would show.",
    "session": "The session is the unit: an interval describes sessions like these.",
}
_ALWAYS = (
    "Inconclusive means that this study cannot decide. Equivalent means that the effect lies within the margin, which "
    "is a choice made in the plan.",
    "Exploratory rows were not the question of this study: treat them as hints.",
)


def _elasticities(data: StudyData) -> list[str]:
    """Return a sentence on whether what is added grows with the level of the block, where that can be estimated."""
    texts = []
    for load in frames.loads(data):
        for name in data.plan.study.primary:
            if (found := elasticity(data, load, name)) is not None:
                middle, low, high = (wording.number(value, 2) for value in (found.slope, found.low, found.high))
                texts.append(f"{middle} ({low} to {high}) in {wording.short_label(name)}{frames.at(data, load)}")
    if not texts:
        return []
    return [
        f"Elasticity of what is added to the level of its block: {wording.listing(texts)}. 0 is a constant amount, "
        "1 an amount in proportion to the level."
    ]


def _session_text(data: StudyData) -> list[str]:
    """Return how many sessions there are and what is known of others: first in short, then for further contrasts.

    What another session would show, or what earlier studies of the same question in the same folder found, is given for
    the contrasts of the first primary response.
    """
    count, noun = len(session_names(data)), "places" if places(data.plan, data.environment) else "sessions"
    studies = () if count else earlier(data)
    rows = [row for row in frames.contrasts(data, primary=True).rows if row.n_blocks and not row.twin]
    others = []
    for row in (row for row in rows if row.response == rows[0].response and (count or studies)):
        if count:
            effects = session_effects(data, row, by_difference=row.by_difference)
            low, high, lead = effects.low, effects.high, "another would show"
        else:
            estimates = [one for study in studies if (one := estimate_in(study, row)) is not None]
            low, high = min(estimates, default=None), max(estimates, default=None)
            lead = f"{number_of(len(estimates), 'earlier session')} here showed"
        if low is not None:
            effect, name = wording.range_of_effect(row, low, high), wording.short_label(row.response)
            at = frames.at(data, row.load)
            others.append(f"{lead} {effect} in {name} for {row.treatment} against {row.baseline}{at}")
    first = f"{count} {noun}" if count else "one session" if others else "one session; another may differ"
    return ["; ".join([first, *others[:1]]), *others[1:]]


def limits(data: StudyData) -> Check:
    """Return the limits of a study's conclusions as a check, which alarms only at builds that are not releases."""
    study, local = data.plan.study, data.plan.study.backend == "local"
    debug, absent = builds.not_released(data.runs), _not_reported(data)
    meshes = {name: text for run in data.runs for name, text in run.versions.items() if name.startswith("mesh ")}
    own = sorted(name.removeprefix("mesh ") for name, text in meshes.items() if "own build" in text)
    parts = [f"{word} build of {program}" for program, word in debug]
    parts += ["reference data planes, not a mesh", "one machine"] if local else ["this cluster", "this load"]
    if own:
        parts.append(f"own builds of {wording.listing(own) if len(own) < 3 else number_of(len(own), 'treatment')}")
    session, *further = _session_text(data)
    parts += [session, *(f"{name} not reported" for name in absent)]
    details = [
        f"{program} reports that it is not a release ({word}), in {wording.listing(treatments)}. Such a build may cost "
        "several times as much as a release, and these results do not apply to one. Measure a release."
        for (program, word), treatments in debug.items()
    ]
    details += _LOCAL if local else _CLUSTER
    details += [f"Built from source, not releases: {wording.listing(own)}."] if own else []
    rates = wording.listing([load.label for load in study.loads])
    details += [
        f"The verdicts are valid for the measured loads ({rates}). They do not predict latency at another rate.",
        *absent.values(),
    ]
    recorded = set(data.table.filter(data.table["included"])["response"].to_list())
    missing = [marked.label for marked in MARKED if f"latency_{marked.key}_s" not in recorded]
    if missing and recorded:
        details.append(
            f"Not reported: {wording.listing(missing)}. A percentile is reported only if at least "
            f"{study.gates.sample_floor:g} requests of every run lie beyond it. Run longer or at a higher rate."
        )
    details += [
        _SESSIONS[study.unit(count)] if (count := len(session_names(data))) else _ONE_SESSION,
        *(f"{text[:1].upper()}{text[1:]}." for text in further),
        _TRAVELS,
        *_elasticities(data),
        *_ALWAYS,
    ]
    check = Check("limits", "problem" if debug else "fine", "", "", "; ".join(parts), details=tuple(details))
    return _with_warnings(check, frames.contrasts(data, primary=True, between=False).rows)


def _not_reported(data: StudyData) -> dict[str, str]:
    """Return a sentence for each primary response that was not recorded, with the loads and the treatments."""
    places: dict[str, list[str]] = {}
    every = [treatment.name for treatment in data.plan.study.treatments if not treatment.twin]
    for name, load in dict.fromkeys((row.response, row.load) for row in frames.contrasts(data, primary=True).rows):
        lacking = [treatment for treatment in every if frames.lacks(data, load, name, treatment)]
        whose = "" if lacking == every else f" (of {wording.listing(lacking)})"
        if lacking:
            places.setdefault(wording.short_label(name), []).append(load + whose)
    return {name: f"{name} is not reported at {wording.listing(at)}." for name, at in places.items()}
