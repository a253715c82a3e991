"""A server that does not answer like a Prometheus gives one line with its address."""

import json
import time

import pytest
from answering import answering

from meshtrial.envoy.keys import Authority
from meshtrial.errors import MeshtrialError, UsageError
from meshtrial.prediction.prometheus import Prometheus, read_token

ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2.5"]}]}}


def test_a_query_returns_labels_values_and_warnings():
    said = json.dumps(ONE | {"warnings": ["a store is away"], "infos": ["x"]}).encode()
    with answering(lambda *_: (200, said)) as address:
        prometheus = Prometheus(address + "/")
        (sample,) = prometheus.query("a", 12.5)
        prometheus.query("a")
    assert (sample.labels, sample.value) == ({"a": "b"}, 2.5)
    assert list(prometheus.warnings) == ["a store is away"]


def test_a_token_is_sent_to_the_address_only(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    seen = []

    def answer(query, headers):
        seen.append(headers.get("Authorization"))
        return 200, json.dumps(ONE).encode()

    with answering(answer) as address, answering(lambda *_: (302, f"{address}/?query=a".encode())) as other:
        for asked in (address, other):
            Prometheus(asked, read_token(tmp_path / "token")).query("a")
    assert seen == ["Bearer secret", None]  # the second was redirected


def refused_query(limit: str, why: str) -> bytes:
    return json.dumps({"status": "error", "errorType": limit, "error": why}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "part"),
    [
        (401, b"", UsageError, r"needs a token \(401\).*--token-file"),
        (403, b"<html>", UsageError, r"needs a token \(403\)"),
        (404, b"not found", UsageError, "answers 404.*/api/v1/query"),
        (200, b"<html>sign in</html>", UsageError, "not that of a Prometheus"),
        (200, b"{}", UsageError, "not that of a Prometheus"),
        (200, b"\xff", UsageError, "not that of a Prometheus"),
        (200, b'{"status": "success", "data": {"result": [{"metric": {}, "value": "1"}]}}', UsageError, "not that of"),
        (502, b"bad gateway", MeshtrialError, "not available"),
        (503, refused_query("timeout", "query timed out"), MeshtrialError, "did not answer .* within 5 s.*--range"),
        (422, refused_query("execution", "too many samples"), MeshtrialError, "too many samples.*--range"),
        (400, refused_query("bad_data", "parse error"), MeshtrialError, "400.*parse error"),
    ],
)
def test_an_answer_that_is_none_is_one_line(status, body, kind, part):
    with answering(lambda *_: (status, body)) as address, pytest.raises(kind, match=part) as refused:
        Prometheus(address, timeout_s=5).query("a")
    assert str(refused.value).startswith(address)
    assert "\n" not in str(refused.value)


def test_a_token_that_is_not_accepted_is_said():
    with answering(lambda *_: (403, b"")) as address, pytest.raises(UsageError, match="refuses this token"):
        Prometheus(address, "old").query("a")


def test_one_that_is_slow_or_away_is_one_line():
    def slow(*_: object) -> tuple[int, bytes]:
        time.sleep(1.5)
        return 200, b""

    with answering(slow) as address, pytest.raises(MeshtrialError, match=r"within 0\.2 s"):
        Prometheus(address, timeout_s=0.2).query("a")
    with pytest.raises(MeshtrialError, match="cannot be reached"):
        Prometheus(address, timeout_s=0.2).query("a")


def test_a_certificate_that_is_not_trusted_is_said_with_its_remedy(tmp_path):
    identity = Authority(tmp_path).issue("prometheus")
    with (
        answering(lambda *_: (200, b""), identity) as address,
        pytest.raises(UsageError, match=r"not trusted.*SSL_CERT_FILE"),
    ):
        Prometheus(address).query("a")
    with answering(lambda *_: (200, b"")) as address, pytest.raises(UsageError, match=r"TLS failed.*http://"):
        Prometheus(address.replace("http:", "https:")).query("a")


@pytest.mark.parametrize(
    "address",
    [
        "localhost:9090",
        "file:///etc/passwd",
        "http://",
        "http://a:b",
        "http://u:p@localhost",
        "http://a/?x=1",
        "http://ü",
    ],
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="prometheus"):
        Prometheus(address)


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "\xff\xfe"])
def test_a_file_without_one_token_is_refused(tmp_path, text):
    (tmp_path / "token").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="token"):
        read_token(tmp_path / "token")
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(tmp_path / "none")
