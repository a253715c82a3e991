"""The site of a packed study: its notebook makes its report from the records alone, twice with the same result."""

import hashlib
import json
import re
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from commandline import meshtrial

from meshtrial import paths
from meshtrial.report import report_seal


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# Fields that another version may word differently.
ADVICE = re.compile(r"/(label|sentence|qualifier|mde|blocks_needed|warnings)(/|$)")


def assert_same_study(one: Path, other: Path) -> None:
    """Records must be equal byte for byte, and verdicts up to rounding, wording and advice."""
    ours, theirs = contents(one), contents(other)
    assert list(ours) == list(theirs)
    for name in ours:
        kind = PurePosixPath(name).name
        if kind == "verdicts.json":
            derived, recorded = (claims(json.loads(held[name])) for held in (ours, theirs))
            added = {path.rpartition("/")[2] for path in derived.keys() - recorded.keys()}
            assert recorded.keys() <= derived.keys()
            assert added <= {"counted", "sessions"}  # columns that earlier versions did not have
            assert all(alike(derived[path], leaf) for path, leaf in recorded.items())
        elif kind != "verdicts.parquet":
            assert ours[name] == theirs[name], name


def contents(packed: Path) -> dict[str, bytes]:
    with tarfile.open(packed) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def alike(one: object, other: object) -> bool:
    return one == (pytest.approx(other, rel=1e-9) if isinstance(other, float) else other)


def claims(rows: object) -> dict[str, object]:
    return {path: leaf for path, leaf in flat(rows).items() if not ADVICE.search(path)}


def flat(value: object, at: str = "") -> dict[str, object]:
    """Return every leaf by its path."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        return {path: leaf for key, item in inside for path, leaf in flat(item, f"{at}/{key}").items()}
    return {at: value}


def test_a_study_without_a_report_gets_one_and_leaves_nothing_behind(tmp_path):
    packed = next((paths.CHECKOUT / "data" / "sample").glob("ambient_vs_no_mesh-*.tar.xz"))
    for name in ("one", "two"):
        code, out, err = meshtrial("site", tmp_path / name, packed)
        assert code == 0, err
        assert "making the report" in out
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    (folder,) = (tmp_path / "one").glob("studies/*/*/")
    assert report_seal(folder / "report.html")["records"].startswith("data/studies/ambient_vs_no_mesh/")
    assert_same_study(folder / "records.tar.xz", packed)
    texts = [path.read_text() for path in (tmp_path / "one").rglob("*.html")]
    assert not [text for text in texts if str(tmp_path) in text or "meshtrial-site-" in text]
    assert not (tmp_path / "studies").exists()
    assert not (tmp_path / "reports").exists()
