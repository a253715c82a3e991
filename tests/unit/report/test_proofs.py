import dataclasses

import pytest

from meshtrial.records.schema import Proof
from meshtrial.report.tables.validity import in_words, proofs, proofs_summary


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        ("EOF", "connection closed without an answer"),
        ("EOF occurred in violation of protocol (_ssl.c:2427)", "connection closed during the TLS handshake"),
        ("tlsv13 alert certificate required", "TLS alert: certificate required"),
        ("sslv3 alert certificate unknown", "TLS alert: certificate unknown"),
        ("certificate verify failed (_ssl.c:1000)", "certificate verify failed"),
        (
            "read tcp 10.244.1.3:45610->10.96.64.121:8080: read: connection reset by peer",
            "connection reset by peer",
        ),
        (
            'X-Forwarded-Client-Cert: By=spiffe://a/sa/echo;Hash=fd00;Subject="";URI=spiffe://a/sa/load',
            "spiffe://a/sa/load, in X-Forwarded-Client-Cert",
        ),
        ("HTTP 403", "HTTP 403"),
        ("two\n lines", "two lines"),
        ("x" * 200, "x" * 139 + "…"),
    ],
)
def test_observations_in_words(observed, said):
    assert in_words(observed) == said


def seen(data, treatment: str, observations: list[str]):
    """The study with these observations of a proof, a run each."""
    runs = list(data.runs)
    mine = [place for place, run in enumerate(runs) if run.treatment == treatment]
    for place, observed in zip(mine, observations, strict=False):
        proof = Proof("plaintext refused", "before", True, "refused", observed)
        runs[place] = dataclasses.replace(runs[place], proofs=(proof,))
    for place in mine[len(observations) :]:
        runs[place] = dataclasses.replace(runs[place], proofs=())
    return dataclasses.replace(data, runs=tuple(runs))


def test_refusals_that_differ_in_ports_alone_are_one(data):
    ports = [f"read tcp 10.0.0.1:{port}->10.0.0.2:80: read: connection reset by peer" for port in (4001, 4002, 4003)]
    (row,) = [row for row in proofs(seen(data, "node-proxy", ports)).rows if row[0].text == "plaintext refused"][:1]
    assert row[3].text == "connection reset by peer"
    assert row[1].text == "3/3"


def test_the_line_over_the_folded_table_counts_checks(data):
    every = sum(len(run.proofs) for run in data.runs)
    assert proofs_summary(data).endswith(f"{every} of {every} results passed")
