"""A packed study has the same bytes each time, verifies without left-out files, and is refused if damaged."""

import json
import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandline import SAMPLE, meshtrial
from hypothesis import given, settings, strategies
from refused import refused

from meshtrial.errors import RecordError, UsageError
from meshtrial.inference import read_study
from meshtrial.records import packed
from meshtrial.records.store import StudyStore, check_checksums

HOME = f"{SAMPLE.parent.name}/{SAMPLE.name}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return packed.pack(SAMPLE, tmp_path_factory.mktemp("packed") / "study.tar.xz")


@pytest.fixture
def file(whole, tmp_path) -> Path:
    return Path(shutil.copy(whole, tmp_path))


@pytest.fixture(params=[packed.SUFFIX, packed.ZIP])
def suffix(request) -> str:
    return request.param


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def rewritten(file: Path, target: Path, changed: dict[str, bytes | None]) -> Path:
    """The same study with files replaced, added, or (None) dropped, by their names; a zip if that is its name."""
    kept = {name: data for name, data in (contents(file) | changed).items() if data is not None}
    if target.suffix == packed.ZIP:
        with zipfile.ZipFile(target, "w") as new:
            for name, data in kept.items():
                new.writestr(name, data)
        return target
    return compressed(target, b"".join(map(member, kept, kept.values())))


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, size: int | None = None) -> bytes:
    """A header that declares a size, by default that of the data, and the data."""
    header = tarfile.TarInfo(name)
    header.type, header.size = kind, len(data) if size is None else size
    return header.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def compressed(target: Path, members: bytes) -> Path:
    end = bytes(2 * tarfile.BLOCKSIZE)
    end += bytes(-len(members + end) % tarfile.RECORDSIZE)
    target.write_bytes(lzma.compress(members + end, preset=0))
    return target


def test_the_same_study_gives_the_same_bytes_and_comes_back_whole(tmp_path):
    one, other = (packed.pack(SAMPLE, tmp_path / name) for name in ("a.tar.xz", "b.tar.xz"))
    assert one.read_bytes() == other.read_bytes()
    folder = packed.unpack(one, tmp_path / "root")
    assert folder == tmp_path / "root" / SAMPLE.parent.name / SAMPLE.name
    files = {path.relative_to(SAMPLE): path.read_bytes() for path in SAMPLE.rglob("*") if path.is_file()}
    back = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert back.pop(Path("packed.json"))
    assert back == files
    assert list((tmp_path / "root").rglob(".unpacking-*")) == []


def test_a_link_is_refused_for_it_would_bring_what_it_points_to(copied, tmp_path):
    (tmp_path / "secret").write_text("key")
    (copied / "notes.txt").symlink_to(tmp_path / "secret")
    with refused(RecordError):
        packed.pack(copied, tmp_path / "linked.tar.xz")
    assert not (tmp_path / "linked.tar.xz").exists()


def test_what_a_crash_left_half_written_is_not_packed(copied, tmp_path):
    (copied / "runs" / ".incomplete-01-1-none").mkdir()
    (copied / "runs" / ".incomplete-01-1-none" / "fortio.json").write_text("{")
    made = contents(packed.pack(copied, tmp_path / "study.tar.xz"))
    assert [name for name in made if "incomplete" in name] == []


def test_a_zip_of_an_earlier_version_is_read(file, tmp_path, studies):
    old = rewritten(file, tmp_path / "old.zip", {})
    folder = packed.unpack(old)
    assert contents(packed.pack(folder, tmp_path / "again.tar.xz")) == contents(file)
    assert StudyStore.open(old).path == StudyStore.open(file).path == folder
    assert meshtrial("verify", old)[0] == 0


def test_a_file_is_whole_wherever_in_a_record_its_last_content_ends(tmp_path):
    sealing = member(f"{HOME}/packed.json", b"{}") + member(f"{HOME}/plan.json", b"{}")
    for blocks in range(tarfile.RECORDSIZE // tarfile.BLOCKSIZE):
        members = sealing + member(f"{HOME}/notes", bytes(blocks * tarfile.BLOCKSIZE))
        packed.unpack(compressed(tmp_path / "study.tar.xz", members), tmp_path / str(blocks))
        longer = compressed(tmp_path / "longer.tar.xz", members + bytes(3 * tarfile.RECORDSIZE))
        with pytest.raises(RecordError):
            packed.unpack(longer, tmp_path / "longer")


def test_a_long_name_comes_back(copied, tmp_path):
    long = Path("runs", "01-1-none", "logs", f"{'p' * 240}.log")
    (copied / long).write_text("line")
    back = packed.unpack(packed.pack(copied, tmp_path / "study.tar.xz"), tmp_path / "root")
    assert (back / long).read_text() == "line"


def test_what_is_left_out_is_named_and_not_missed(tmp_path, studies):
    file = packed.pack(SAMPLE, tmp_path / "slim.tar.xz", ["requests", "logs"])
    assert file.stat().st_size < packed.pack(SAMPLE, tmp_path / "whole.tar.xz").stat().st_size / 2
    code, said, _ = meshtrial("verify", file)
    assert code == 0
    assert said.startswith(f"{file}: plan sealed")
    assert "logs and requests left out when it was packed" in said
    assert not studies.exists()  # for verification it is unpacked elsewhere and removed
    data = read_study(StudyStore.open(file))
    assert data.verdicts == read_study(StudyStore.open(SAMPLE)).verdicts
    with refused(RecordError):
        data.latency(data.runs[0])
    run = data.run_folder(data.runs[0])
    (run / "fortio.json").unlink()  # files that were not left out are missing
    assert check_checksums(run) == [f"{run / 'fortio.json'}: is missing"]


def test_what_was_left_out_once_stays_named_when_it_is_packed_again(tmp_path, studies):
    slim = packed.unpack(packed.pack(SAMPLE, tmp_path / "slim.tar.xz", ["logs"]))
    again = packed.unpack(packed.pack(slim, tmp_path / "again.tar.xz", ["requests"]), tmp_path / "root")
    assert packed.left_out(again) == ("logs", "requests")


def test_the_command_packs_and_a_packed_study_is_unpacked_once(tmp_path, studies, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, _ = meshtrial("pack", SAMPLE, "--without", "requests,logs")
    assert code == 0
    file = tmp_path / f"{SAMPLE.parent.name}-{SAMPLE.name}.tar.xz"
    assert said.startswith(file.name)
    first = StudyStore.open(file).path
    (first / "mark").write_text("mine")
    assert StudyStore.open(file).path == first
    assert (first / "mark").exists()


def test_a_run_that_was_altered_is_not_unpacked_and_verify_reads_the_file_itself(file, tmp_path, studies):
    name = f"{HOME}/runs/01-1-none/run.json"
    text = contents(file)[name].replace(b'"valid": true', b'"valid":  true')
    altered = rewritten(file, tmp_path / "altered.tar.xz", {name: text})
    with refused(RecordError):
        StudyStore.open(altered)
    assert not studies.exists() or list(studies.rglob("*.json")) == []
    StudyStore.open(file)  # an intact copy is unpacked already
    code, _, said = meshtrial("verify", altered)
    assert code == 1
    assert said.endswith(f"/{SAMPLE.name}/runs/01-1-none/run.json: was altered after it was recorded\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--without", "request"], "--without request: must be one of requests, logs"),
        (["--out", "study.zip"], "study.zip: the name of a packed study ends in .tar.xz"),
        (["--out", "/dev/null/study.tar.xz"], "/dev/null/study.tar.xz: cannot be written"),
    ],
)
def test_what_cannot_be_packed_is_told_in_one_line(tmp_path, monkeypatch, argv, said):
    monkeypatch.chdir(tmp_path)
    code, out, text = meshtrial("pack", SAMPLE, *argv)
    assert code in (1, 2)
    assert said in text
    assert (out, text.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_study_without_verdicts_is_not_packed(tmp_path):
    folder = shutil.copytree(SAMPLE, tmp_path / "study" / "folder")
    (folder / "verdicts.json").unlink()
    with refused(RecordError):
        packed.pack(folder, tmp_path / "study.tar.xz")


def test_what_is_no_packed_study_is_refused_by_name(file, tmp_path, suffix):
    root = tmp_path / "root"
    bad = {
        "cut": {},
        "outside": {"../../evil": b"x"},
        "absolute": {"/tmp/evil/x": b"x"},
        "two": {"other/study/plan.json": b"{}"},
        "note": {f"{HOME}/packed.json": None},
        "plan": {f"{HOME}/plan.json": None},
    }
    for name, changed in bad.items():
        path = rewritten(file, tmp_path / f"{name}{suffix}", changed)
        if name == "cut":
            path.write_bytes(path.read_bytes()[:-1000])
        with refused(RecordError, names=[path]):
            packed.unpack(path, root)
    with refused(UsageError):
        packed.unpack(tmp_path / f"none{suffix}", root)
    assert not root.exists() or list(root.rglob("*.json")) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        pytest.param(tarfile.SYMTYPE, 0, id="link"),
        pytest.param(tarfile.LNKTYPE, 0, id="hard link"),
        pytest.param(tarfile.DIRTYPE, 0, id="folder"),
        pytest.param(tarfile.CHRTYPE, 0, id="device"),
        pytest.param(tarfile.GNUTYPE_SPARSE, 0, id="sparse"),
        pytest.param(tarfile.XHDTYPE, 512, id="extended header"),
        pytest.param(tarfile.GNUTYPE_LONGNAME, 2**13, id="name longer than any path"),
        pytest.param(tarfile.REGTYPE, -512, id="negative size"),
    ],
)
def test_a_member_that_is_not_a_plain_file_is_refused(tmp_path, kind, size):
    members = member(f"{HOME}/plan.json", b"{}") + member(f"{HOME}/odd", bytes(max(0, size)), kind, size)
    path = compressed(tmp_path / "odd.tar.xz", members)
    with refused(RecordError, names=[path]):
        packed.unpack(path, tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    """Pack a small study: the runs of the sample's first treatments."""
    folder = tmp_path_factory.mktemp("sound")
    study = shutil.copytree(SAMPLE, folder / SAMPLE.parent.name / SAMPLE.name)
    for run in sorted((study / "runs").iterdir())[2:]:
        shutil.rmtree(run)
    return packed.pack(study, folder / "study.tar.xz", ["requests", "logs"]).read_bytes()


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(data=strategies.data())
def test_a_damaged_file_never_gives_a_traceback(sound, data):
    place = data.draw(strategies.integers(0, len(sound) - 1))
    other = data.draw(strategies.none() | strategies.integers(1, 255))  # cut off there, or another byte
    rest = b"" if other is None else bytes([sound[place] ^ other]) + sound[place + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bad.tar.xz").write_bytes(sound[:place] + rest)
        try:
            home = packed.unpack(Path(folder) / "bad.tar.xz", Path(folder) / "root")
        except RecordError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert other is not None, "a file that was cut off is not whole"
            assert [problem for run in (home / "runs").iterdir() for problem in check_checksums(run)] == []


def test_another_study_in_its_place_is_left_alone(file, tmp_path):
    place = tmp_path / "root" / HOME
    place.mkdir(parents=True)
    (place / "plan.json").write_text("{}")
    with refused(RecordError):
        packed.unpack(file, tmp_path / "root")
    assert (place / "plan.json").read_text() == "{}"


def test_a_note_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "packed.json").write_text(json.dumps({"schema": "meshtrial.packed/1", "left_out": ["runs"]}))
    with refused(RecordError):
        packed.left_out(tmp_path)


def test_two_packings_of_one_plan_are_told_apart_by_the_digests_of_their_runs(file, tmp_path, studies):
    other = tmp_path / "other.tar.xz"
    rewritten(file, other, {f"{HOME}/runs/01-1-none/{name}": None for name in ("SHA256SUMS", "run.json")})
    folder = packed.unpack(file)
    with refused(RecordError):
        packed.unpack(other)
    assert packed.unpack(file) == folder
    # The same content in another encoding of its files.
    plan = (SAMPLE / "plan.json").read_bytes()
    odd = rewritten(file, tmp_path / "odd.tar.xz", {f"{HOME}//plan.json": plan, f"{HOME}/plan.json": None})
    assert packed.unpack(odd) == folder


def test_what_was_unpacked_without_requests_does_not_stand_for_a_file_that_has_them(file, tmp_path, studies):
    slim = packed.pack(SAMPLE, tmp_path / "slim.tar.xz", ["requests", "logs"])
    folder = packed.unpack(slim)
    with refused(RecordError):
        packed.unpack(file)
    shutil.rmtree(folder)
    assert packed.unpack(file) == packed.unpack(slim) == folder


def test_a_file_that_would_fill_the_memory_or_the_disk_is_refused_before_it_is_unpacked(file, tmp_path, monkeypatch):
    many = tmp_path / "many.zip"
    with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as made:
        for number in range(5):
            made.writestr(f"{HOME}/zeros-{number}", bytes(2**26))
    plan = {f"{HOME}/packed.json": b"{}", f"{HOME}/plan.json": b" " * (2**26 + 1)}
    for path in (
        many,
        compressed(tmp_path / "large.tar.xz", member(f"{HOME}/zeros", size=2**28 + 1)),
        compressed(tmp_path / "count.tar.xz", member(f"{HOME}/empty") * 50_001),
        rewritten(file, tmp_path / "plan.zip", plan),
        rewritten(file, tmp_path / "plan.tar.xz", plan),
        with_dictionary(file, tmp_path / "dictionary.tar.xz", 40),
    ):
        with refused(RecordError, names=[path]):
            packed.unpack(path, tmp_path / "root")
    assert not (tmp_path / "root").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with refused(RecordError, names=[file, 1000, tmp_path / "root" / SAMPLE.parent.name]):
        packed.unpack(file, tmp_path / "root")
    assert list((tmp_path / "root").rglob("*.*")) == []


def with_dictionary(file: Path, target: Path, size: int) -> Path:
    """The same file, which asks for another dictionary: 40 is the largest, 4 GiB (The .xz File Format, 5.3.1)."""
    data = bytearray(file.read_bytes())
    end = 12 + 4 * data[12]  # the first block's header comes after 12 bytes and ends with its checksum
    assert data[14:16] == b"\x21\x01", "the only filter is LZMA2"
    data[16] = size
    data[end : end + 4] = zlib.crc32(data[12:end]).to_bytes(4, "little")
    target.write_bytes(data)
    return target
