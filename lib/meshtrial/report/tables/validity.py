"""The runs behind the checks of a report's first screen: places, every check of every attempt, and failures."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from meshtrial.inference.sessions import session_effects, session_names
from meshtrial.inference.values import LoadBlocks
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Site, places
from meshtrial.records.schema import GateResult, Proof, RunRecord, VerdictRow
from meshtrial.report import frames, wording
from meshtrial.report.checks import KIND_OF, number_of
from meshtrial.report.markup import Cell, Column, Fragment, Table, bullets, fold, join, passed_of, valued
from meshtrial.report.tables.failures import failed_requests

_SHARES = frozenset({"rate", "late", "errors", "generator CPU", "generator late", "foreign load"})
_OTHERS = "A/A twin, drift and order of exploratory responses"


def validity(data: StudyData) -> Fragment:
    """Show the runs behind the checks: places, checks, failed requests, failed attempts, exploratory warnings."""
    treatment_failed = any(not proof.passed for run in data.runs for proof in run.proofs)
    codes = {code for code, kind in KIND_OF.items() if kind in ("twin", "drift", "blocks")}
    others = wording.warnings([row for row in frames.verdicts(data) if row.exploratory], codes)
    checks = {gate.name for run in data.runs for gate in run.gates}
    failed = list(dict.fromkeys(gate.name for run in data.runs for gate in run.failed_gates))
    passed = wording.count(sum(not run.failed_gates for run in data.runs))
    summary = f"{number_of(len(checks), 'check')}; {passed} of {number_of(len(data.runs), 'attempt')} passed them all"
    summary += f"; failed: {wording.listing(failed)}" if failed else ""
    return join(
        places_of_blocks(data),
        sessions_of_blocks(data),
        nodes_of_blocks(data),
        _gates(data).folded(summary, opened=bool(failed)),
        failed_requests(data),
        _failed_attempts(data),
        proofs(data).folded(proofs_summary(data), opened=treatment_failed),
        *([fold(_OTHERS, number_of(len(others), "warning"), bullets(others))] if others else []),
    )


def _gates(data: StudyData) -> Table:
    grouped: dict[tuple[str, str, str], list[GateResult]] = defaultdict(list)
    valid: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for run in data.runs:
        valid[run.load, run.treatment].append(run.valid)
        for gate in run.gates:
            grouped[run.load, run.treatment, gate.name].append(gate)
    names = ["", *dict.fromkeys(name for _, _, name in grouped)]  # the first row counts whole attempts
    treatments = frames.order(data, {name for _, name in valid})
    rows = [(load, name) for load in frames.loads(data) for name in names]

    def threshold(row: tuple[str, str]) -> Cell | None:
        values = (gate.threshold for name in treatments for gate in grouped.get((row[0], name, row[1]), ()))
        return valued(next(values, None), partial(gate_value, row[1]))

    def result(treatment: str, row: tuple[str, str]) -> Cell:
        load, name = row
        if not name:
            return passed_of(sum(valid[load, treatment]), len(valid[load, treatment]))
        gates = grouped.get((load, treatment, name), [])
        failed = [gate for gate in gates if not gate.passed]
        worst = max((gate.value for gate in failed or gates if gate.value is not None), default=None)
        text = "not measured" if worst is None else gate_value(name, worst)
        if failed:
            return passed_of(len(gates) - len(failed), len(gates), text)
        return Cell(text, worst) if gates else Cell("–")

    columns: list[Column[tuple[str, str]]] = [
        Column("check", lambda row: row[1] or "valid attempts"),
        Column("threshold", threshold, numeric=True),
        *(Column(name, partial(result, name), numeric=True) for name in treatments),
    ]
    note = "Each cell: the worst value of all attempts; if a check failed, how many attempts passed it."
    keys = [f"{load}|{name or 'valid'}" for load, name in rows]
    groups = [load for load, _ in rows] if len(frames.loads(data)) > 1 else ()
    title = "Checks of load and machine, by treatment"
    return Table.from_rows(title, columns, rows, note, keys=keys, groups=groups, show_caption=False)


def gate_value(name: str, value: float) -> str:
    """Format a check's value or threshold; shares become percentages."""
    if name in _SHARES:
        return f"{wording.plain(round(100 * value, 2))}{wording.NBSP}%"
    return wording.plain(float(f"{value:.3g}"))


def _failed_attempts(data: StudyData) -> Fragment:
    failed = [run for run in data.runs if not run.valid]
    if not failed:
        return join()
    columns: list[Column[RunRecord]] = [
        Column("run", lambda run: run.run_id),
        Column("attempt", lambda run: run.attempt, numeric=True),
        Column("reason for failure", lambda run: "; ".join(run.reasons) or "no reason recorded", wide=True),
    ]
    keys = [f"{run.run_id}|{run.attempt}" for run in failed]
    table = Table.from_rows("Attempts that failed", columns, failed, keys=keys, show_caption=False)
    return table.folded(f"{len(failed)}, each with its reason", opened=len(failed) <= 6)


_WHERE = (
    "There is one plan and one seed, and each block was run entirely in one place. Compared runs therefore share their "
    "place, and a faster place changes no contrast."
)
_SESSIONS = (
    "The effect of a {session} is the mean of its block differences. In brackets: its blocks. {unit} The "
    "estimate of another {session} lies in the last column with {level} probability, if it is drawn like these. At "
    "least three {session}s are needed."
)
_UNITS = {
    "block": "Verdicts are of the blocks and describe the measured {session}s. If the effect differs between them by "
    "more than chance (Kruskal-Wallis over the blocks, at 1 %), or if there are too few blocks to tell, the verdict "
    "carries a warning.",
    "session": "Verdicts are of these means, with the {session} as the unit.",
}
_NODES = (
    "The nodes of a block were drawn at random, the same for all its treatments, so a faster node changes no contrast. "
    "Each number is the median over the blocks on those nodes; it has no verdict."
)
_MOST_NODES = 6


def sessions_of_blocks(data: StudyData) -> Fragment:
    """Tabulate the effect in each session or place and the prediction for another one; nothing if there is only one."""
    names = session_names(data)
    if not names:
        return join()
    session = "place" if places(data.plan, data.environment) else "session"
    rows = _judged(data)
    effects = {row.key: session_effects(data, row, by_difference=row.by_difference) for row in rows}

    def estimate(index: int, row: VerdictRow) -> Cell:
        return _effect(row, effects[row.key].estimates[index], effects[row.key].blocks[index])

    def prediction(row: VerdictRow) -> str | None:
        found = effects[row.key]
        return None if found.low is None else wording.range_of_effect(row, found.low, found.high)

    columns: list[Column[VerdictRow]] = [
        *_contrast_columns(data),
        *(Column(name, partial(estimate, index), numeric=True) for index, name in enumerate(names)),
        Column(f"predicted for another {session}", prediction, numeric=True),
    ]
    level = wording.declared_percent(1 - data.plan.study.alpha)
    unit = _UNITS[data.plan.study.unit(len(names))].format(session=session)
    note = _SESSIONS.format(level=level, session=session, unit=unit)
    return Table.from_rows(f"The effect in each {session}", columns, rows, note).fragment()


def places_of_blocks(data: StudyData) -> Fragment:
    """Tabulate the places of a divided study; nothing for a study of one place."""
    sites = places(data.plan, data.environment)
    runs_in = {
        place.name: sorted(
            (run for run in data.runs if run.repetition in place.blocks), key=lambda run: run.start_unix_s
        )
        for place in sites
    }

    def recorded(place: Site, *names: str) -> object:
        """Return the first of these facts that a place's testbed recorded."""
        testbed = place.environment.get("testbed", data.environment.get("testbed"))
        known = testbed if isinstance(testbed, dict) else {}
        return next((known[name] for name in names if known.get(name)), "not recorded")

    def minute(moments: list[str], place: int) -> str | None:
        return moments[place][:16].replace("T", " ") if moments else None

    columns: list[Column[Site]] = [
        Column("place", lambda place: place.name),
        Column("blocks", lambda place: f"{place.blocks[0]} to {place.blocks[-1]}"),
        Column("cluster or CPU", lambda place: recorded(place, "cluster", "cpu_model")),
        Column("Kubernetes or kernel", lambda place: recorded(place, "kubernetes", "kernel")),
        Column("nodes", lambda place: len(nodes) if isinstance(nodes := recorded(place, "nodes"), list) else None),
        Column("from (UTC)", lambda place: minute([run.started_at for run in runs_in[place.name]], 0)),
        Column("to (UTC)", lambda place: minute([run.finished_at for run in runs_in[place.name]], -1)),
        Column("valid", lambda place: f"{sum(run.valid for run in runs_in[place.name])} of {len(runs_in[place.name])}"),
    ]
    return Table.from_rows("Where the blocks were run", columns, sites, _WHERE).fragment() if sites else join()


def nodes_of_blocks(data: StudyData) -> Fragment:
    """Tabulate the effect by nodes; nothing if all blocks used the same nodes or the study did not choose them."""
    blocks_on: dict[str, dict[str, list[int]]] = {}
    for run in data.runs:
        hosts = run.extra.get("nodes")
        if isinstance(hosts, Mapping):
            sides = []
            for side in ("generators", "application"):
                listed = hosts.get(side, ())
                more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
                sides.append(f"{side} on {', '.join(listed[:3])}{more}")
            blocks = blocks_on.setdefault(" ".join(sides), {}).setdefault(run.load, [])
            blocks += [run.repetition] if run.repetition not in blocks else []
    if len(blocks_on) < 2:
        return join()
    names = sorted(blocks_on, key=lambda name: -sum(map(len, blocks_on[name].values())))[:_MOST_NODES]
    note = _NODES
    if len(blocks_on) > len(names):
        note += f" Shown are the {_MOST_NODES} of {len(blocks_on)} combinations of nodes that have most blocks."

    def effect(name: str, row: VerdictRow) -> Cell:
        pair = [row.treatment, row.baseline]
        runs = LoadBlocks.of(data.table, row.load, blocks_on[name].get(row.load, [])).complete(pair, row.response)
        if not runs.blocks:
            return _effect(row, None, 0)
        treated, base = runs.values(pair, row.response).values()
        value = np.median(treated - base) if row.by_difference else np.exp(np.median(np.log(treated / base)))
        return _effect(row, float(value), len(runs.blocks))

    columns: list[Column[VerdictRow]] = [
        *_contrast_columns(data),
        *(Column(name, partial(effect, name), numeric=True) for name in names),
    ]
    return Table.from_rows("The effect by node", columns, _judged(data), note).fragment()


def _contrast_columns(data: StudyData) -> list[Column[VerdictRow]]:
    def contrast(row: VerdictRow) -> str:
        return f"{row.treatment} against {row.baseline}" + (f", {row.load}" if len(frames.loads(data)) > 1 else "")

    return [Column("contrast", contrast), Column("response", lambda row: row.label, wide=True)]


def _judged(data: StudyData) -> list[VerdictRow]:
    return [row for row in frames.verdicts(data) if not row.exploratory and row.n_blocks]


def _effect(row: VerdictRow, value: float | None, blocks: int) -> Cell:
    if value is None:
        return Cell("no block")
    text = wording.in_unit(row.response, value, sign=True) if row.by_difference else wording.change(value)
    return Cell(text, value, note=f"{blocks} blocks")


_NUMBER = re.compile(r"\d+")
_LONGEST = 140  # characters of an observation that are shown; records hold all
# Errors that libraries report for a refused connection, and their meaning.
_WORDS = (
    (re.compile(r"EOF occurred in violation of protocol\b.*"), "connection closed during the TLS handshake"),
    (re.compile(r"EOF"), "connection closed without an answer"),
    (re.compile(r"(?:read|write) tcp \S+->\S+: (?:read|write): (.+)"), r"\1"),
    (re.compile(r"(?:sslv3|tlsv1\d?) alert (.+)"), r"TLS alert: \1"),
    (re.compile(r"(.+?) \(_ssl\.c:\d+\)"), r"\1"),
)
# The identity in a proxy's description of a connection.
_IDENTITY = re.compile(r"(X-Forwarded-Client-Cert): .*?\bURI=([^;,\s]+).*", re.DOTALL)


def proofs(data: StudyData) -> Table:
    """Tabulate checks by treatment with expected and observed values; if a check failed, only values of failures."""
    grouped: dict[tuple[str, str], list[Proof]] = defaultdict(list)
    for run in data.runs:
        for proof in run.proofs:
            grouped[run.treatment, proof.name].append(proof)
    ranks = {name: rank for rank, name in enumerate(frames.order(data, {name for name, _ in grouped}))}
    listed = sorted(grouped.items(), key=lambda item: ranks[item[0][0]])

    def notable(group: list[Proof]) -> list[Proof]:
        return [proof for proof in group if not proof.passed] or group

    columns: list[Column[list[Proof]]] = [
        Column("check", lambda group: group[0].name),
        Column("passed", lambda group: passed_of(sum(proof.passed for proof in group), len(group)), numeric=True),
        Column("expected", lambda group: together(proof.expected for proof in notable(group)), middle=True),
        Column("observed", lambda group: together(in_words(proof.observed) for proof in notable(group)), wide=True),
    ]
    note = (
        "Before and after each run, these checks verify that the treatment is what its label says. A treatment that "
        "is not listed has no such check. The records of the runs hold every observation in full."
    )
    groups = [treatment for (treatment, _), _ in listed]
    rows = [group for _, group in listed]
    title = "Checks of the treatment, by treatment"
    return Table.from_rows(title, columns, rows, note, groups=groups, show_caption=False)


def proofs_summary(data: StudyData) -> str:
    """Return one line on how many checks of the treatments passed."""
    every = [(run.treatment, proof) for run in data.runs for proof in run.proofs]
    passed = sum(proof.passed for _, proof in every)
    kinds = len({(treatment, proof.name) for treatment, proof in every})
    return (
        f"whether each treatment is what its label says: {number_of(kinds, 'check')}; "
        f"{wording.count(passed)} of {number_of(len(every), 'result')} passed"
    )


def in_words(observed: str) -> str:
    """Return an observation in plain words, on one line of limited length."""
    text = " ".join(observed.split())
    for pattern, words in _WORDS:
        if match := pattern.fullmatch(text):
            text = match.expand(words)
            break
    else:
        text = _IDENTITY.sub(r"\2, in \1", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def together(texts: Iterable[str]) -> str:
    """Join distinct texts, at most two of them. Texts that differ only in one number become one, with its range."""
    distinct = list(dict.fromkeys(texts))
    numbers = [_NUMBER.findall(text) for text in distinct]
    if len(distinct) > 1 and len({_NUMBER.sub("#", text) for text in distinct}) == 1 and len(numbers[0]) == 1:
        values = [int(number[0]) for number in numbers]
        return _NUMBER.sub(f"{wording.count(min(values))} to {wording.count(max(values))}", distinct[0])
    first = " · ".join(distinct[:2])
    return first if len(distinct) <= 2 else f"{first} · and {len(distinct) - 2} more"
