"""What must hold before two sets of runs may be compared at all.

Opinion: what forbids a comparison is refused with its reason, all reasons at once; what a reader must know is a
warning by name. A copied result counts as forbidden: a published study was found to hold "run 2" byte for byte equal
to run 1.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from meshtrial.compare.runs import Finding, Run
from meshtrial.design.study import Gates
from meshtrial.errors import UsageError
from meshtrial.load.recorded import differences
from meshtrial.stats.ranktests import FloatArray, rank_sum_p
from meshtrial.vocabulary import VerdictLabel

# Findings on an order in which drift reads as an effect.
SEQUENTIAL, MOSTLY_BEFORE = CONFOUNDED = ("sequential-order", "mostly-before")
_AS_EFFECT = "whatever drifted meanwhile reads as an effect"
_LEVEL = 0.05
_GATES = Gates()
_FEWEST_PAIRS = 5
_APART = 0.1
_SIZES_APART = 1000
_MANY = 200
# Numbers that two runs do not share by chance, all of them to the last digit.
_FEWEST_NUMBERS = 6


def require_replicates(by_treatment: Mapping[str, Sequence[Run]]) -> None:
    """Refuse a treatment of one run, whatever the user insists on."""
    sizes = {name: len(runs) for name, runs in by_treatment.items()}
    if min(sizes.values()) < 2:
        listed = " against ".join(f"{n} run{'s' * (n != 1)} of {name}" for name, n in sizes.items())
        raise UsageError(
            f"{listed}: one run shows no noise, so nothing tells an effect from it; give at least 2 runs a treatment "
            "(6 a side for p = 2/924; requests are not replicates)"
        )


def check(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[Finding, ...]:
    """All findings on the files of all treatments, those that forbid first."""
    runs = [run for treatment in by_treatment.values() for run in treatment]
    findings = [
        *_copies(runs),
        *_same_content(runs),
        *_contradictions(runs),
        *_settings(runs),
        *_sizes(runs),
        *_kinds(runs),
        *_gates(runs),
        *_many(by_treatment),
        *_order(by_treatment),
        *_notes(runs),
    ]
    return tuple(sorted(findings, key=lambda finding: not finding.blocking))


def _copies(runs: Sequence[Run]) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for run in runs:
        for path, digest in run.sources.items():
            known = first.setdefault(digest, str(path))
            if known != str(path):
                text = f"{path} is a copy of {known}, byte for byte: a copy is no second run"
                yield Finding("copied-run", text, True)


def _same_content(runs: Sequence[Run]) -> Iterator[Finding]:
    """Copies that were packed, indented or renamed: the same start and the same numbers, to the last digit."""
    first: dict[tuple[object, ...], Run] = {}
    for run in runs:
        if run.kind == "table" or (run.start_unix_s is None and len(run.values) < _FEWEST_NUMBERS):
            continue
        known = first.setdefault((run.start_unix_s, run.requests, *sorted(run.values.items())), run)
        if known is not run and set(known.sources.values()).isdisjoint(run.sources.values()):
            when = "" if run.start_unix_s is None else f"began when {known.name} did and "
            same = "the same numbers" if when else f"the same numbers as {known.name}"
            yield Finding("copied-run", f"{run.name} {when}holds {same}: a copy is no second run", True)


def _contradictions(runs: Sequence[Run]) -> Iterator[Finding]:
    """Numbers of one file that contradict each other: it was edited, or put together from several runs."""
    for run in runs:
        settings = run.settings
        # Of generators that were merged the settings hold the first one's requests.
        if settings is None or settings.requests is None or settings.actual_duration_s is None or len(run.sources) > 1:
            continue
        count, lasted = settings.requests, settings.actual_duration_s
        if settings.actual_rps is not None and abs(settings.actual_rps * lasted - count) > _APART * max(count, 1) + 1:
            text = (
                f"{run.name}: {count} requests are not {settings.actual_rps:g} a second for {lasted:g} s: its numbers "
                "are not of one run"
            )
            yield Finding("contradiction", text, True)
        asked = settings.requested_duration_s
        if asked and not (1 - _APART) * asked - 1 <= lasted <= (1 + _APART) * asked + 1:
            text = f"{run.name} lasted {lasted:g} s of the asked {asked:g} s: it was interrupted or stalled"
            yield Finding("duration", text, True)


def _sizes(runs: Sequence[Run]) -> Iterator[Finding]:
    """Answers of very different size: not the same service, or error pages."""
    sized = [(run.settings.body_bytes, run) for run in runs if run.settings is not None and run.settings.body_bytes]
    if not sized:
        return
    (small, one), (large, other) = min(sized, key=lambda item: item[0]), max(sized, key=lambda item: item[0])
    if large >= _SIZES_APART * small:
        text = (
            f"the answers of {other.name} have {large:.0f} bytes in the mean and those of {one.name} {small:.0f}: that "
            "is not the same service"
        )
        yield Finding("answer-sizes", text, True)


def _many(by_treatment: Mapping[str, Sequence[Run]]) -> Iterator[Finding]:
    """More runs than anybody makes: probably requests."""
    for name, runs in by_treatment.items():
        if len(runs) > _MANY and all(run.kind == "table" for run in runs):
            text = (
                f"{len(runs)} runs of {name}: if each is a request, they are not replicates, and these p-values mean "
                "nothing; give one value a run (what varies between deployments is the same for every request of one)"
            )
            yield Finding("many-runs", text, False)


def _settings(runs: Sequence[Run]) -> Iterator[Finding]:
    known = [(run, run.settings) for run in runs if run.settings is not None]
    for difference in differences([settings for _, settings in known]):
        example = next(
            f"{a.name} against {b.name}"
            for (a, one), (b, other) in ((known[i], known[j]) for j in range(len(known)) for i in range(j))
            if any(d.setting == difference.setting for d in differences([one, other]))
        )
        why = "; latencies are not comparable across it" if difference.blocking else ""
        yield Finding("different-settings", f"{difference} ({example}){why}", difference.blocking)


def _kinds(runs: Sequence[Run]) -> Iterator[Finding]:
    """Files whose percentiles are not made in the same way, and what files of a kind do not say."""
    first = {run.kind: run for run in reversed(runs) if run.kind != "table"}
    logs = first.get("access log")
    other = next((run for kind, run in first.items() if kind != "access log"), None)
    if logs and other:
        text = (
            f"{logs.name} is an access log and {other.name} is not: exact quantiles against histogram ones differ "
            "by the buckets alone; give the same kind for all runs"
        )
        yield Finding("different-kinds", text, True)
    elif len(first) > 1:
        listed = " and ".join(f"{run.name} ({kind})" for kind, run in sorted(first.items()))
        text = f"{listed} come by their percentiles in different ways; give the same kind for all runs"
        yield Finding("different-kinds", text, True)
    for kind, run in sorted(first.items()):
        unsaid = _missing_settings(run)
        if unsaid:
            text = f"{kind} files do not say {', '.join(unsaid)}: make sure yourself that they were equal"
            yield Finding("settings-unknown", text, False)
        if "error_ratio" not in run.values:
            text = f"{kind} files do not say how many requests failed: make sure yourself that hardly any did"
            yield Finding("failures-unknown", text, False)


def _missing_settings(run: Run) -> list[str]:
    """Settings that must be equal and stand in no file of this kind."""
    settings = run.settings
    if settings is None:
        return ["rate", "connections", "client", "payload"]
    known = {
        "the asked rate (so a missed one is not seen)": settings.closed_loop
        or settings.requested_rps is not None
        or settings.sent_share is not None,
        "connections or users": settings.threads is not None or settings.users is not None,
    }
    # fortio's oldest versions leave out much that hardly ever differs.
    if settings.generator not in ("fortio", "nighthawk"):
        known["payload"] = settings.payload_bytes is not None
    return [name for name, said in known.items() if not said]


def _gates(runs: Sequence[Run]) -> Iterator[Finding]:
    for run in runs:
        ratio = delivered(run)
        if ratio is not None and abs(ratio - 1) > _GATES.rate_tolerance:
            text = f"{run.name} delivered {ratio:.1%} of the asked rate: its latency is not that of the asked load"
            yield Finding("rate-missed", text, False)
        if _failed_too_many(run):
            errors, allowed = run.values["error_ratio"], _GATES.error_ratio
            yield Finding("errors", f"{run.name}: {errors:.1%} of its requests failed (more than {allowed:.0%})", False)


def delivered(run: Run) -> float | None:
    """Achieved over requested rate; None for a closed loop or where the file does not say."""
    settings = run.settings
    if settings is None:
        return None
    if settings.sent_share is not None:
        return settings.sent_share
    if not settings.requested_rps or settings.actual_rps is None:
        return None
    return settings.actual_rps / settings.requested_rps


def _rate_not_reached(run: Run) -> bool:
    share = delivered(run)
    return share is not None and share < 1 - _GATES.rate_tolerance


def _failed_too_many(run: Run) -> bool:
    return run.values.get("error_ratio", 0.0) > _GATES.error_ratio


def stopped(by_treatment: Mapping[str, Sequence[Run]]) -> dict[str, VerdictLabel]:
    """Treatments without a latency to compare, by what happened in more than half of their runs.

    Too many of the requests failed (invalid: what is left is no latency), or the asked rate was missed (saturated: a
    result).
    """
    words = ((VerdictLabel.SATURATED, _rate_not_reached), (VerdictLabel.INVALID, _failed_too_many))
    return {
        name: word for word, bad in words for name, runs in by_treatment.items() if 2 * sum(map(bad, runs)) > len(runs)
    }


def _order(by_treatment: Mapping[str, Sequence[Run]]) -> Iterator[Finding]:
    """The order of the runs, where every file says when it began."""
    files = [run for runs in by_treatment.values() for run in runs if run.kind != "table"]
    silent = [run for run in files if run.start_unix_s is None]
    if silent:
        text = (
            f"{len(silent)} of {len(files)} files do not say when their run began, e.g. {silent[0].name}: neither the "
            "order of the runs nor a drift over time can be checked"
        )
        yield Finding("start-unknown", text, False)
        return
    starts = {
        name: np.array([run.start_unix_s for run in runs if run.start_unix_s is not None])
        for name, runs in by_treatment.items()
    }
    if any(len(own) < len(by_treatment[name]) for name, own in starts.items()):
        return
    pairs = [
        sorted(pair, key=lambda name: float(np.median(starts[name]))) for pair in itertools.combinations(starts, 2)
    ]
    apart = [(first, second) for first, second in pairs if starts[first].max() < starts[second].min()]
    if apart:
        first, second = apart[0]
        text = (
            f"all runs of {first} began before the first of {second}"
            + (f" (and {len(apart) - 1} more such pair{'s' * (len(apart) > 2)})" if len(apart) > 1 else "")
            + f": {_AS_EFFECT}, 28-36 % false positives at a nominal 5 %, and no test or pairing corrects it; repeat "
            "in randomised blocks"
        )
        yield Finding(SEQUENTIAL, text, False)
    for first, second in pairs:
        if (first, second) not in apart and next(iter(by_treatment)) in (first, second):
            yield from _mostly_before(first, starts[first], second, starts[second])


def _mostly_before(first: str, earlier: FloatArray, second: str, later: FloatArray) -> Iterator[Finding]:
    """Whether runs began earlier than those of another treatment, by more than a drawn order makes likely."""
    p = rank_sum_p(earlier, later)
    if p <= _LEVEL:
        share = float((earlier[:, None] < later).mean())
        text = (
            f"the runs of {first} began mostly before those of {second} (in {share:.0%} of all pairs of runs; an order "
            f"that is drawn does that with p = {p:.2g}): {_AS_EFFECT}; repeat in randomised blocks"
        )
        yield Finding(MOSTLY_BEFORE, text, False)


def fixed_order(by_treatment: Mapping[str, Sequence[Run]], blocks: Sequence[str]) -> list[Finding]:
    """Pairs in which the same treatment always ran first: what changes from one run to the next is in the effect."""
    names = list(by_treatment)
    starts = {
        name: {run.block: run.start_unix_s for run in runs if run.start_unix_s is not None}
        for name, runs in by_treatment.items()
    }
    findings = []
    for one, other in ((names[0], name) for name in names[1:]):
        both = [(starts[one].get(block), starts[other].get(block)) for block in blocks]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        # By chance alone five pairs have one order in a sixteenth of all comparisons.
        if len(known) >= _FEWEST_PAIRS and (all(a < b for a, b in known) or all(a > b for a, b in known)):
            first, second = (one, other) if known[0][0] < known[0][1] else (other, one)
            text = (
                f"in each of {len(known)} pairs {first} ran before {second}: a trend, or what the first run leaves "
                "behind, reads as an effect, and no test sees it; draw the order anew for every pair"
            )
            findings.append(Finding("fixed-order", text, False))
    return findings


def _notes(runs: Sequence[Run]) -> list[Finding]:
    by_note: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            by_note.setdefault(note, []).append(run.name)
    return [
        Finding("note", f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}", False)
        for note, names in by_note.items()
    ]
