"""Studies that can be opened: samples first, then recorded ones from the newest, each once."""

import shutil

from meshtrial import paths
from meshtrial.records import listing


def test_samples_come_first_and_recorded_ones_newest_first(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    for name in (
        "rollout/20260101T000000Z-aaaa",
        "ambient_vs_no_mesh/20260301T000000Z-bbbb",
        "rollout/20260201T000000Z-cccc",
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "plan.json").touch()
    found = list(listing.listing())
    samples = [path.name.partition(".")[0] for path in listing.SAMPLE.glob("*.tar.xz")]
    assert found[0].startswith("ambient_vs_no_mesh-20261121T211720Z")
    assert set(found[1 : 1 + len(samples)]) == set(samples)
    assert found[1 + len(samples) :] == [
        "ambient_vs_no_mesh-20260301T000000Z-bbbb",
        "rollout-20260201T000000Z-cccc",
        "rollout-20260101T000000Z-aaaa",
    ]


def test_a_sample_that_was_unpacked_is_listed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path))
    name, path = next((name, path) for name, path in listing.listing().items() if path.is_file())
    study, _, rest = name.partition("-")
    folder = tmp_path / study / rest
    folder.mkdir(parents=True)
    shutil.copy(paths.CHECKOUT / "CITATION.cff", folder / "plan.json")
    found = listing.listing()
    assert found[name] == folder != path
    assert list(found.values()).count(path) == 0


def test_nothing_recorded_leaves_the_samples(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHTRIAL_DATA", str(tmp_path / "not there"))
    assert all(path.is_relative_to(listing.SAMPLE) for path in listing.listing().values())
