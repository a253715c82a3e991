"""Versions of a data plane: their declaration, what a file may change, and refusals in one line."""

import hashlib
import os
from pathlib import Path

import pytest
from refused import refused

from meshtrial.design.study import APPS, Treatment
from meshtrial.errors import MissingToolError, UsageError
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.local import apps, versions

SLOW = """
http_filters:
- name: envoy.filters.http.fault
  typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault}
bootstrap: {overload_manager: {refresh_interval: 1s}}
flags: [--concurrency, 2]
"""


def test_the_grammar_of_a_treatment_is_one_and_reads_itself_back():
    cases = {
        "none@details": ("none", "", (), "details"),
        "sidecar@new": ("sidecar", "new", (), ""),
        "sidecar@1.37.2+mtls": ("sidecar", "1.37.2", ("mtls",), ""),
        "sidecar+mtls@details": ("sidecar", "", ("mtls",), "details"),
        "sidecar@new+mtls@details": ("sidecar", "new", ("mtls",), "details"),
        "sidecar@new@details": ("sidecar", "new", (), "details"),
        "none@@mine": ("none", "", (), "mine"),
    }
    for text, (dataplane, version, features, app) in cases.items():
        found = Treatment.parse(text)
        assert (found.dataplane, found.version, found.features, found.app) == (dataplane, version, features, app)
        assert found.name == text
    assert Treatment.parse("sidecar-aa@new").name == "sidecar-aa@new"
    assert Treatment.parse("sidecar@new").as_twin().name == "sidecar-aa@new"
    for bad in ("sidecar@", "sidecar@@", "@new", "sidecar@new@"):
        with refused(UsageError):
            Treatment.parse(bad)


def test_the_applications_of_the_project_are_those_that_the_grammar_knows():
    on_clusters = {path.stem for path in (KubernetesOptions().folder / "apps").glob("*.yaml")}
    assert set(APPS) == set(apps.APPS) | on_clusters | {"tiers"}


def test_a_file_may_change_filters_bootstrap_and_flags(tmp_path):
    file = tmp_path / "slow.yaml"
    file.write_text(SLOW)
    found = versions.read_versions(f"slow={file}")["slow"]
    assert found.envoy is None
    assert found.http_filters[0]["name"] == "envoy.filters.http.fault"
    assert found.flags == ("--concurrency", 2)
    assert found.digest == hashlib.sha256(SLOW.encode()).hexdigest()
    assert found.described() == f"configuration (sha256 {found.digest[:12]})"
    base = {"node": {"id": "x"}, "overload_manager": {"actions": []}}
    merged = versions.merged(base, found.bootstrap)
    assert merged == {"node": {"id": "x"}, "overload_manager": {"actions": [], "refresh_interval": "1s"}}
    assert base == {"node": {"id": "x"}, "overload_manager": {"actions": []}}


@pytest.mark.parametrize(
    "content",
    [
        "[1, 2]",
        "",
        "filters: []",
        "http_filters: {}",
        "http_filters: [x]",
        "http_filters: [{a: 1}]",
        "bootstrap: []",
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, content):
    file = tmp_path / "odd.yaml"
    file.write_text(content)
    with refused(UsageError):
        versions.read_versions(f"odd={file}")


def test_a_file_that_is_no_yaml_is_refused(tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_text("a: [")
    with refused(UsageError, names=[file, "YAML"]):
        versions.read_versions(f"odd={file}")


def test_declarations_that_mean_nothing_are_refused(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("flags: []")
    text = tmp_path / "no-program"
    text.write_text("hello")
    for asked in (
        "old",
        f"a={file},a={file}",
        f"details={file}",
        "old=/nowhere/envoy",
    ):
        with refused(UsageError):
            versions.read_versions(asked)
    with refused(MissingToolError):
        versions.read_versions(f"old={text}")


def test_a_treatment_says_how_it_was_understood(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(SLOW)
    declared = versions.read_versions(f"a={file}")
    assert versions.of(Treatment.parse("sidecar"), declared) is None
    assert versions.of(Treatment.parse("sidecar@a+mtls"), declared) == declared["a"]
    for text in (
        "sidecar@b",
        "none@a",
        "node-proxy@a",
        "sidecar@a+client-only",
    ):
        with refused(UsageError):
            versions.of(Treatment.parse(text), declared)


@pytest.mark.linux
def test_another_program_is_found_out():
    proof = versions.Version(name="x", digest="0" * 64, envoy=Path("/bin/sh")).prove(os.getpid(), "proxy", "before")
    assert not proof.passed
    assert proof.observed.startswith("another program, python")
