"""Versions as treatments of one study: a known delay is called different, an equal configuration equivalent."""

import pytest
from local.studies import executed, need_releases, recorded, study_of, without_twin

from meshtrial import native

DELAY_S = 0.02
DELAYED = f"""
http_filters:
- name: envoy.filters.http.fault
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
    delay: {{fixed_delay: {DELAY_S}s, percentage: {{numerator: 100}}}}
"""


def test_a_delay_is_told_apart_and_an_equal_version_is_equivalent(tmp_path):
    slow, same = tmp_path / "slow.yaml", tmp_path / "same.yaml"
    slow.write_text(DELAYED)
    same.write_text("flags: [--drain-time-s, '1']")
    given = {
        "treatments": "sidecar@same,sidecar@envoy,sidecar@slow",
        "versions": f"same={same},slow={slow},envoy={native.find('envoy')}",
        "rps": 100,
        "connections": 4,
        "duration_s": 0.6,
        "warmup_s": 0.1,
        "blocks": 7,
        "primary": "p50",
        # Half of the delay: other programs move the median of such runs by less than a quarter of it.
        "margin": f"p50={1e3 * DELAY_S / 2:g}ms",
    }
    data = recorded(without_twin(study_of("ambient_vs_no_mesh", given)))
    assert [run.reasons for run in data.runs if not run.valid] == []
    rows = {row.treatment: row for row in data.verdicts if row.response == "latency_p50_s"}
    assert (rows["sidecar@slow"].verdict, rows["sidecar@slow"].qualifier) == ("slower", "material")
    assert rows["sidecar@slow"].difference == pytest.approx(DELAY_S, abs=DELAY_S / 4)
    # A difference too small to matter, even if this many runs can show it.
    same = rows["sidecar@envoy"]
    assert same.verdict == "equivalent" or same.qualifier == "below margin"
    versions = {run.treatment: run.versions for run in data.runs}
    assert versions["sidecar@slow"]["version slow"].startswith("configuration (sha256 ")
    assert "version envoy" in versions["sidecar@envoy"]
    names = {proof.name for proof in data.runs[0].proofs}
    assert any(name.startswith("version ") and name.endswith("of server sidecar") for name in names)


def test_releases_are_fetched_and_each_run_records_which_one_it_had():
    releases = ("1.39.3", "1.40.0")
    versions = ",".join(releases)
    need_releases(versions)
    given = {
        "treatments": ",".join(f"sidecar@{release}+mtls" for release in releases),
        "versions": versions,
        "rps": 100,
        "connections": 4,
        "duration_s": 0.6,
        "warmup_s": 0.1,
        "blocks": 2,
    }
    study = without_twin(study_of("ambient_vs_no_mesh", given))
    runs = executed(study).records()
    assert [run.reasons for run in runs if not run.valid] == []
    recorded_as = {run.treatment: run.versions for run in runs}
    assert set(recorded_as) == {treatment.name for treatment in study.treatments}
    for release in releases:
        assert recorded_as[f"sidecar@{release}+mtls"][f"version {release}"].startswith(f"{release} RELEASE Clean")
