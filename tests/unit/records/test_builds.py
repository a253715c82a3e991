"""Builds that may not be releases, judged by what runs recorded about their programs."""

from dataclasses import dataclass

import pytest

from meshtrial.records.builds import not_released


@dataclass(frozen=True)
class Run:
    treatment: str
    versions: dict[str, str]


SSL = "BoringSSL 9e5580933739"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("envoy", f"1.40.0 RELEASE Clean {SSL}", ""),
        ("envoy", f"1.40.0 DEBUG Modified {SSL}", "DEBUG"),
        ("version old", f"1.37.0 DEBUG Clean {SSL} (sha256 0123456789ab)", "DEBUG"),
        ("version slow", "configuration (sha256 0123456789ab)", ""),
        ("Envoy is built as", "RELEASE", ""),
        ("Envoy is built as", "DEBUG, RELEASE", "DEBUG"),
        ("linkerd-proxy is built as", "debug", "debug"),
        ("ztunnel's program is built as", "symbols-release", ""),
        # Without whole optimisation: faster to build, slower to run.
        ("ztunnel's program is built as", "quick-release", "quick-release"),
        # A version is not a build type, whatever its name.
        ("istiod tells", "1.31-debug", ""),
    ],
)
def test_what_is_no_release_is_found(name: str, text: str, word: str):
    found = not_released([Run("a", {name: text}), Run("a", {name: text}), Run("b", {name: text})])
    assert found == ({(name.removesuffix(" is built as"), word): ["a", "b"]} if word else {})
