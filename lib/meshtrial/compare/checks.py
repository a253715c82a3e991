"""Check whether sets of runs may be compared.

Findings that forbid a comparison are reported all at once; others become named warnings. Copied results are forbidden:
in one published study the file of run 2 was a copy of run 1, byte for byte.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from meshtrial.compare.runs import Finding, Run
from meshtrial.design.study import Gates
from meshtrial.errors import UsageError
from meshtrial.load.recorded import differences
from meshtrial.stats.ranktests import rank_sum_p
from meshtrial.vocabulary import VerdictLabel

# Findings on an order of runs in which drift looks like an effect.
SEQUENTIAL, MOSTLY_BEFORE = CONFOUNDED = ("sequential-order", "mostly-before")
_AS_EFFECT = "any drift looks like an effect"
_LEVEL = 0.05
_GATES = Gates()
_FEWEST_PAIRS = 5
_APART = 0.1
_SIZES_APART = 1000
_MANY = 200
# Two runs do not share this many numbers by chance, to the last digit.
_FEWEST_NUMBERS = 6


def require_replicates(by_treatment: Mapping[str, Sequence[Run]]) -> None:
    """Raise UsageError if a treatment has only one run, even with ``force``."""
    sizes = {name: len(runs) for name, runs in by_treatment.items()}
    if min(sizes.values()) < 2:
        listed = " against ".join(f"{n} run{'s' * (n != 1)} of {name}" for name, n in sizes.items())
        raise UsageError(
            f"{listed}: one run shows no noise, so effect and noise cannot be separated; give at least 2 runs per "
            "treatment (6 against 6 for p = 2/924; requests are not replicates)"
        )


def check(by_treatment: Mapping[str, Sequence[Run]]) -> tuple[Finding, ...]:
    """Return all findings on the files of all treatments, blocking ones first."""
    runs = [run for treatment in by_treatment.values() for run in treatment]
    of_runs = (_copies, _same_content, _contradictions, _settings, _sizes, _kinds, _gates)
    findings = [finding for find in of_runs for finding in find(runs)]
    findings += [*_many(by_treatment), *_order(by_treatment), *_notes(runs)]
    return tuple(sorted(findings, key=lambda finding: not finding.blocking))


def _copies(runs: Sequence[Run]) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for run in runs:
        for path, digest in run.sources.items():
            known = first.setdefault(digest, str(path))
            if known != str(path):
                text = f"{path} is a copy of {known}, byte for byte; a copy is not a second run"
                yield Finding("copied-run", text, True)


def _same_content(runs: Sequence[Run]) -> Iterator[Finding]:
    """Find copies that were compressed, reformatted or renamed: the same start and numbers, to the last digit."""
    first: dict[tuple[object, ...], Run] = {}
    for run in runs:
        if run.kind == "table" or (run.start_unix_s is None and len(run.responses) < _FEWEST_NUMBERS):
            continue
        known = first.setdefault((run.start_unix_s, run.requests, *sorted(run.responses.items())), run)
        if known is not run and set(known.sources.values()).isdisjoint(run.sources.values()):
            same = "numbers" if run.start_unix_s is None else "start and numbers"
            text = f"{run.name} has the same {same} as {known.name}; a copy is not a second run"
            yield Finding("copied-run", text, True)


def _contradictions(runs: Sequence[Run]) -> Iterator[Finding]:
    """Find contradictory numbers in a file that was edited or combined from several runs."""
    for run in runs:
        settings = run.settings
        # For merged files the settings contain only the requests of the first.
        if settings is None or settings.requests is None or settings.actual_duration_s is None or len(run.sources) > 1:
            continue
        count, lasted = settings.requests, settings.actual_duration_s
        if settings.actual_rps is not None and abs(settings.actual_rps * lasted - count) > _APART * max(count, 1) + 1:
            text = (
                f"{run.name}: {count} requests are not {settings.actual_rps:g} per second for {lasted:g} s; the "
                "numbers are not from one run"
            )
            yield Finding("contradiction", text, True)
        requested = settings.requested_duration_s
        if requested and not (1 - _APART) * requested - 1 <= lasted <= (1 + _APART) * requested + 1:
            text = f"{run.name} lasted {lasted:g} s instead of {requested:g} s; it was interrupted or stalled"
            yield Finding("duration", text, True)


def _sizes(runs: Sequence[Run]) -> Iterator[Finding]:
    """Find responses of very different size, which are from different services or are error pages."""
    sized = [(run.settings.body_bytes, run) for run in runs if run.settings is not None and run.settings.body_bytes]
    if not sized:
        return
    (small, one), (large, other) = min(sized, key=lambda item: item[0]), max(sized, key=lambda item: item[0])
    if large >= _SIZES_APART * small:
        text = (
            f"responses have {large:.0f} bytes on average in {other.name} and {small:.0f} in {one.name}; "
            "this is not the same service"
        )
        yield Finding("answer-sizes", text, True)


def _many(by_treatment: Mapping[str, Sequence[Run]]) -> Iterator[Finding]:
    """Find implausibly many runs, which are probably requests."""
    for name, runs in by_treatment.items():
        if len(runs) > _MANY and all(run.kind == "table" for run in runs):
            text = (
                f"{len(runs)} runs of {name}: if each is a request, they are not replicates, and these p-values are "
                "meaningless; give one value per run, because deployments differ but requests of one share it"
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
        reason = "; latencies are not comparable" if difference.blocking else ""
        yield Finding("different-settings", f"{difference} ({example}){reason}", difference.blocking)


def _kinds(runs: Sequence[Run]) -> Iterator[Finding]:
    """Find percentiles that were computed in different ways, and facts that files of a kind do not contain."""
    first = {run.kind: run for run in reversed(runs) if run.kind != "table"}
    logs = first.get("access log")
    other = next((run for kind, run in first.items() if kind != "access log"), None)
    if logs and other:
        text = (
            f"{logs.name} is an access log and {other.name} is not; exact and histogram quantiles differ by the "
            "buckets alone; give the same kind for all runs"
        )
        yield Finding("different-kinds", text, True)
    elif len(first) > 1:
        listed = " and ".join(f"{run.name} ({kind})" for kind, run in sorted(first.items()))
        text = f"{listed} compute percentiles in different ways; give the same kind for all runs"
        yield Finding("different-kinds", text, True)
    for kind, run in sorted(first.items()):
        missing = _missing_settings(run)
        if missing:
            text = f"{kind} files do not contain {', '.join(missing)}; make sure that they were equal"
            yield Finding("settings-unknown", text, False)
        if "error_ratio" not in run.responses:
            text = f"{kind} files do not contain the number of failed requests; make sure that hardly any failed"
            yield Finding("failures-unknown", text, False)


def _missing_settings(run: Run) -> list[str]:
    """Return settings that must be equal but are not in files of this kind."""
    settings = run.settings
    if settings is None:
        return ["rate", "connections", "client", "payload"]
    known = {
        "the requested rate (so a missed rate cannot be detected)": settings.closed_loop
        or settings.requested_rps is not None
        or settings.sent_share is not None,
        "connections or users": settings.threads is not None or settings.users is not None,
    }
    # The oldest versions of fortio leave out settings that hardly ever differ.
    if settings.generator not in ("fortio", "nighthawk"):
        known["payload"] = settings.payload_bytes is not None
    return [name for name, is_known in known.items() if not is_known]


def _gates(runs: Sequence[Run]) -> Iterator[Finding]:
    for run in runs:
        ratio = delivered(run)
        if ratio is not None and abs(ratio - 1) > _GATES.rate_tolerance:
            text = f"{run.name} achieved {ratio:.1%} of the requested rate, so its latency is of another load"
            yield Finding("rate-missed", text, False)
        if _failed_too_many(run):
            errors, allowed = run.responses["error_ratio"], _GATES.error_ratio
            yield Finding("errors", f"{run.name}: {errors:.1%} of its requests failed (more than {allowed:.0%})", False)


def delivered(run: Run) -> float | None:
    """Return achieved over requested rate; None for a closed loop or if the file does not contain it."""
    settings = run.settings
    if settings is None:
        return None
    if settings.sent_share is not None:
        return settings.sent_share
    if not settings.requested_rps or settings.actual_rps is None:
        return None
    return settings.actual_rps / settings.requested_rps


def _rate_not_reached(run: Run) -> bool:
    return (share := delivered(run)) is not None and share < 1 - _GATES.rate_tolerance


def _failed_too_many(run: Run) -> bool:
    return run.responses.get("error_ratio", 0.0) > _GATES.error_ratio


def stopped(by_treatment: Mapping[str, Sequence[Run]]) -> dict[str, VerdictLabel]:
    """Return treatments without a comparable latency, by what happened in more than half of their runs.

    If too many requests failed they are invalid; if the requested rate was missed they are saturated.
    """
    words = ((VerdictLabel.SATURATED, _rate_not_reached), (VerdictLabel.INVALID, _failed_too_many))
    return {
        name: word for word, bad in words for name, runs in by_treatment.items() if 2 * sum(map(bad, runs)) > len(runs)
    }


def _order(by_treatment: Mapping[str, Sequence[Run]]) -> Iterator[Finding]:
    """Check the order of the runs, if every file contains its start."""
    files = [run for runs in by_treatment.values() for run in runs if run.kind != "table"]
    unknown = [run for run in files if run.start_unix_s is None]
    if unknown:
        text = (
            f"{len(unknown)} of {len(files)} files do not contain the start of the run, e.g. {unknown[0].name}; "
            "neither the order of the runs nor a drift over time can be checked"
        )
        yield Finding("start-unknown", text, False)
        return
    starts = {
        name: np.array([run.start_unix_s for run in runs if run.start_unix_s is not None])
        for name, runs in by_treatment.items()
    }
    if any(len(times) < len(by_treatment[name]) for name, times in starts.items()):
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
            + f"; {_AS_EFFECT} (28-36 % false positives at a nominal 5 %), and no test or pairing corrects it; repeat "
            "in randomised blocks"
        )
        yield Finding(SEQUENTIAL, text, False)
    for first, second in pairs:
        earlier, later = starts[first], starts[second]
        if (first, second) in apart or next(iter(by_treatment)) not in (first, second):
            continue
        if (p := rank_sum_p(earlier, later)) <= _LEVEL:
            share = float((earlier[:, None] < later).mean())
            text = (
                f"the runs of {first} began mostly before those of {second} (in {share:.0%} of all pairs of runs; "
                f"p = {p:.2g} for a random order); {_AS_EFFECT}; repeat in randomised blocks"
            )
            yield Finding(MOSTLY_BEFORE, text, False)


def fixed_order(by_treatment: Mapping[str, Sequence[Run]], blocks: Sequence[str]) -> list[Finding]:
    """Find pairs in which the same treatment always ran first, so that the order is part of the effect."""
    names = list(by_treatment)
    starts = {
        name: {run.block: run.start_unix_s for run in runs if run.start_unix_s is not None}
        for name, runs in by_treatment.items()
    }
    findings = []
    for one, other in ((names[0], name) for name in names[1:]):
        both = [(starts[one].get(block), starts[other].get(block)) for block in blocks]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        # Five pairs have the same order by chance with probability 1/16.
        if len(known) >= _FEWEST_PAIRS and (all(a < b for a, b in known) or all(a > b for a, b in known)):
            first, second = (one, other) if known[0][0] < known[0][1] else (other, one)
            text = (
                f"in each of {len(known)} pairs {first} ran before {second}; a trend, or an after-effect of the first "
                "run, looks like an effect, and no test detects it; draw the order of every pair at random"
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
