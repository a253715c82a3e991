"""Parts of the test cluster that need neither root nor a cluster."""

import hashlib
import json
import shutil
import signal
import tarfile
from pathlib import Path

import pytest
from interrupted_build import interrupt
from testcluster import cgroups, host, nodes, pki, plugin, procs, seal, snapshot
from testcluster.images import Image, write_image
from testcluster.recipes import BY_HAND, FILES, PROGRAMS, Files, fingerprint
from testcluster.ruby import webrick_details
from testcluster.settings import CHECKOUT, HERE, NODES, ClusterError, Layout, node_address, node_pods
from testcluster.state import State


def test_home_is_never_inside_the_checkout() -> None:
    with pytest.raises(ClusterError, match="outside"):
        Layout.default({"MESHTRIAL_CLUSTER_HOME": str(CHECKOUT / "tests" / "x")})
    assert Layout.default({"MESHTRIAL_CLUSTER_HOME": "/somewhere/else"}).bin == Path("/somewhere/else/bin")


def test_addresses() -> None:
    assert [node_address(node) for node in NODES] == ["10.99.0.11", "10.99.0.12"]
    assert [str(node_pods(node)) for node in NODES] == ["10.244.1.0/24", "10.244.2.0/24"]


def test_every_program_is_pinned() -> None:
    for item in (*PROGRAMS, *BY_HAND, *FILES):
        folder = HERE / "go" / item.module
        assert (folder / "go.mod").exists()
        assert (folder / "go.sum").exists() or item.module == "pause"  # which imports nothing
        assert item.key() == item.key()
    programs = (*PROGRAMS, *BY_HAND)
    assert len({item.key() for item in programs}) == len(programs)
    assert fingerprint() == fingerprint()


def test_copied_files_are_adapted_or_the_build_says_what_changed(tmp_path: Path) -> None:
    recipe, swaps = "manifests/base.yaml", {"text": {"{{ if .it }}": "{{ if false }}"}}
    files = Files("x", "tools", "x.test/x", {}, swaps, {recipe: "more"})
    (tmp_path / "text").write_text("{{ if .it }}a{{ end }}{{ if .it }}b{{ end }}")
    files.adapt(tmp_path)
    assert (tmp_path / "text").read_text() == "{{ if false }}a{{ end }}{{ if false }}b{{ end }}"
    assert (tmp_path / "more").read_text() == (HERE / recipe).read_text()
    with pytest.raises(ClusterError, match=r"x.test/x: text has no '{{ if .it }}' any more"):
        files.adapt(tmp_path)
    # Additions and replacements are part of the key, so an older stamp is not current.
    assert files.key() != Files("x", "tools", "x.test/x", {}).key()
    assert files.key() != Files("x", "tools", "x.test/x", {}, swaps).key()


def test_an_image_is_a_function_of_its_content(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    image = Image("it", "meshtrial.test/it:1", ["/opt/it/program"], {"/opt/it/program": program}, {"/bin/it": "x"})
    digests = []
    for name in ("a.tar", "b.tar"):
        write_image(image, tmp_path / name)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert digests[0] == digests[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar", "program"]
    with tarfile.open(tmp_path / "a.tar") as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        layer = archive.extractfile("layer.tar")
        assert layer is not None
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer.read()).hexdigest()}"]
        layer.seek(0)
        with tarfile.open(fileobj=layer) as content:
            names = content.getnames()
            assert names.index("opt/it") < names.index("opt/it/program")  # folders before their contents
            assert content.getmember("opt/it/program").mode == 0o755
            assert content.getmember("bin/it").linkname == "x"
    assert manifest["RepoTags"] == [image.ref]


def test_keys_are_private_from_their_first_byte(tmp_path: Path) -> None:
    pki.make(tmp_path / "pki")
    private = [*(tmp_path / "pki").glob("*.key"), *(tmp_path / "pki").glob("*.kubeconfig")]
    assert len(private) > 15
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    config = json.loads((tmp_path / "pki" / "admin.kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.99.0.1:6443"


def test_a_pid_that_was_reused_is_not_ours() -> None:
    mine = procs.Proc("me", 1, procs.start_time(1))
    assert mine.alive()
    assert not procs.Proc("me", 1, mine.start + 1).alive()
    for pid in (0, 1, -5):
        with pytest.raises(ClusterError, match="refused"):
            procs.kill([pid])


def test_state_survives_and_a_reboot_ends_every_process(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert State.load(layout) is None
    state = State.new(layout, "tests")
    state.procs["init"] = procs.Proc("init", 1, procs.start_time(1))
    state.save()
    again = State.load(layout)
    assert again is not None
    assert [proc.name for proc in again.alive()] == ["init"]
    again.boot = "another"
    assert again.alive() == []


def test_version_2_controllers_are_handed_down_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the files, for lack of such a machine: the requested controllers and their place."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    tree = cgroups.Hierarchy(tmp_path, 2, frozenset())
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [tree])
    assert cgroups.version() == 2
    assert cgroups.reasons() == []
    assert cgroups.make("n1") == ["cpu", "cpuset", "io", "pids"]
    inside = tmp_path / "meshtrial-n1"
    assert (inside / "cgroup.subtree_control").read_text() == "+cpu +cpuset +io +memory +pids"
    assert cgroups.trees(["n1", "n2"]) == [inside]
    (tmp_path / "cgroup.controllers").write_text("memory")
    assert cgroups.reasons() == ["no cgroup controllers cpu, cpuset, pids"]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "which", lambda program: None if program in ("runc", "ctr") else "/bin/true")
    monkeypatch.setattr(host, "plugin_folder", lambda: None)
    assert host.missing_packages() == ["containerd", "containernetworking-plugins", "runc"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_compiler(tmp_path: Path, number: int) -> None:
    if packages := host.missing_packages():
        pytest.skip(f"a build is refused without {' '.join(packages)}")
    home = tmp_path / "home"
    changed = {"MESHTRIAL_CLUSTER_HOME": str(home), "GOCACHE": str(tmp_path / "cache")}
    code, said = interrupt([HERE / "cluster", "build"], number, changed, compilers=2)
    assert code == 130, said
    assert said.splitlines()[-1] == "cluster: interrupted"
    assert list((home / "bin").iterdir()) == []
    assert list(home.glob("work-*")) == []


def test_a_networks_configuration_is_compared_by_what_it_says(tmp_path: Path):
    one, other, broken = (tmp_path / name for name in ("a.conflist", "b.conflist", "c.conflist"))
    one.write_text('{"name": "net", "plugins": [{"type": "bridge", "ipMasq": false}]}')
    other.write_text('{\n "plugins": [{"ipMasq": false, "type": "bridge"}],\n "name": "net"}')
    broken.write_text('{"name": "net", "plugins": [')
    assert nodes._meaning(one) == nodes._meaning(other)
    other.write_text(other.read_text().replace("false", "true"))
    assert nodes._meaning(one) != nodes._meaning(other)
    assert nodes._meaning(broken) == broken.read_bytes()


@pytest.mark.skipif(shutil.which("ruby") is None, reason="not run: ruby is not installed")
def test_the_image_with_ruby_has_what_its_recipe_installs() -> None:
    image = webrick_details()
    assert image is not None, "ruby is there, but not webrick, or not from Debian's packages"
    assert "/usr/local/share/meshtrial/details.rb" in image.files
    assert image.links["/usr/bin/ruby"].startswith("ruby")
    assert any(name.endswith("/lib/webrick.rb") for name in image.files)
    assert not any(name.startswith("/usr/share/doc/") for name in image.files)
    assert image.user == "65532:65532"


def test_there_is_no_image_without_ruby(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert webrick_details() is None
    without_webrick = tmp_path / "ruby"
    without_webrick.write_text("#!/bin/sh\nexit 1\n")
    without_webrick.chmod(0o755)
    assert webrick_details() is None


def test_the_seal_fits_the_sources_that_it_was_written_for_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "go.mod").write_text("module x")
    assert not seal.fits(tmp_path)
    seal.write(tmp_path)
    assert seal.fits(tmp_path)
    (tmp_path / "README.md").write_text("says more")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert seal.fits(tmp_path)
    (tmp_path / "go" / "go.mod").write_text("module y")
    assert not seal.fits(tmp_path)
    (tmp_path / "go" / "go.mod").write_text("module x")
    assert seal.fits(tmp_path)
    (tmp_path / "go" / "go.mod").rename(tmp_path / "go" / "go.sum")
    assert not seal.fits(tmp_path)


class Ended:
    """A cluster whose end leaves what a test names."""

    def __init__(self, home: Path) -> None:
        self.layout = Layout(home)

    def stop(self) -> None:
        """All is gone, it says."""


def test_a_session_fails_by_what_it_leaves_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = snapshot.Snapshot({"link": frozenset({"lo"}), "mount": frozenset({"/"})})
    monkeypatch.setattr(snapshot, "take", lambda: clean)
    plugin.end(Ended(tmp_path), clean)  # type: ignore[arg-type]
    more = snapshot.Snapshot({"link": frozenset({"lo", "mtrial0"}), "mount": frozenset({"/"})})
    monkeypatch.setattr(snapshot, "take", lambda: more)
    with pytest.raises(pytest.fail.Exception, match=r"the session left on this machine: link mtrial0$"):
        plugin.end(Ended(tmp_path), clean)  # type: ignore[arg-type]
    (tmp_path / "run").mkdir()
    with pytest.raises(pytest.fail.Exception, match=rf"link mtrial0; folder {tmp_path}/run$"):
        plugin.end(Ended(tmp_path), clean)  # type: ignore[arg-type]
