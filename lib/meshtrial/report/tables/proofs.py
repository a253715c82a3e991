"""What every treatment was proven to be, and what was seen: in words, not in those of a TLS library or a socket.

Records keep every observation as it was made; here the same refusal reads the same, whatever port it came from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from meshtrial.records.dataset import StudyData
from meshtrial.records.schema import Proof
from meshtrial.report import frames, wording
from meshtrial.report.markup import Column, Table, passed_of

_NUMBER = re.compile(r"\d+")
_LONGEST = 140  # characters of an observation; more of it stands in the record
# What libraries say of a refused connection, and what it is.
_WORDS = (
    (re.compile(r"EOF occurred in violation of protocol\b.*"), "connection closed during the TLS handshake"),
    (re.compile(r"EOF"), "connection closed without an answer"),
    (re.compile(r"(?:read|write) tcp \S+->\S+: (?:read|write): (.+)"), r"\1"),
    (re.compile(r"(?:sslv3|tlsv1\d?) alert (.+)"), r"TLS alert: \1"),
    (re.compile(r"(.+?) \(_ssl\.c:\d+\)"), r"\1"),
)
# An identity among what a proxy writes down of a connection.
_IDENTITY = re.compile(r"(X-Forwarded-Client-Cert): .*?\bURI=([^;,\s]+).*", re.DOTALL)


def proofs(data: StudyData) -> Table:
    """One row per treatment and proof: what was expected and seen, the failures' own words where it failed."""
    grouped: dict[tuple[str, str], list[Proof]] = defaultdict(list)
    for run in data.runs:
        for proof in run.proofs:
            grouped[run.treatment, proof.name].append(proof)
    places = {name: place for place, name in enumerate(frames.order(data, {name for name, _ in grouped}))}
    listed = sorted(grouped.items(), key=lambda named: places[named[0][0]])
    columns: list[Column[list[Proof]]] = [
        Column("proof", lambda mine: mine[0].name),
        Column("passed", lambda mine: passed_of(len(mine) - len(_failed(mine)), len(mine)), numeric=True),
        Column("expected", lambda mine: together(proof.expected for proof in _failed(mine) or mine), middle=True),
        Column(
            "observed", lambda mine: together(in_words(proof.observed) for proof in _failed(mine) or mine), wide=True
        ),
    ]
    note = (
        "Every treatment is proven before and after each run to be what its label says. A treatment without a row has "
        "no proof. The runs' records hold every observation in full."
    )
    groups = [treatment for (treatment, _), _ in listed]
    rows = [mine for _, mine in listed]
    return Table.of("Proofs, by treatment", columns, rows, note, groups=groups, show_caption=False)


def _failed(proofs: list[Proof]) -> list[Proof]:
    return [proof for proof in proofs if not proof.passed]


def holds(data: StudyData) -> str:
    """The table in a line."""
    every = [(run.treatment, proof) for run in data.runs for proof in run.proofs]
    passed = sum(proof.passed for _, proof in every)
    kinds = len({(treatment, proof.name) for treatment, proof in every})
    return (
        f"that each treatment is what its label says: {wording.count(kinds)} proofs, "
        f"{wording.count(passed)} of {wording.count(len(every))} checks passed"
    )


def in_words(observed: str) -> str:
    """An observation as a reader understands it, one line and not too long."""
    text = " ".join(observed.split())
    for pattern, words in _WORDS:
        if found := pattern.fullmatch(text):
            text = found.expand(words)
            break
    else:
        text = _IDENTITY.sub(r"\2, in \1", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1].rstrip() + "…"


def together(texts: Iterable[str]) -> str:
    """Different texts, the first two of them; texts that differ in one number alone are one, with its range."""
    found = list(dict.fromkeys(texts))
    numbers = [_NUMBER.findall(text) for text in found]
    if len(found) > 1 and len({_NUMBER.sub("#", text) for text in found}) == 1 and len(numbers[0]) == 1:
        values = [int(number[0]) for number in numbers]
        return _NUMBER.sub(f"{wording.count(min(values))} to {wording.count(max(values))}", found[0])
    shown = " · ".join(found[:2])
    return shown if len(found) <= 2 else f"{shown} · and {len(found) - 2} more"
