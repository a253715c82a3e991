"""The folder of other projects' images and charts: which files are used, and which are refused in one line."""

import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from testcluster import ClusterError
from testcluster.images import BESIDE_MESHES, Image, node_images, write_image
from testcluster.meshimages import CHARTS, VARIABLE, MeshImages, find_folder, full_name, prepare, references
from testcluster.nodes import wait_imported
from testcluster.settings import Layout, image_architecture

ARCHITECTURE = image_architecture()
REFERENCE = "meshtrial.test/kuma/kuma-cp:2.14.3"


def archive(path: Path, *refs: str, size: int = 300_000) -> Path:
    """A docker archive of one image with a layer of some size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    program = path.with_suffix(".program")
    program.write_bytes(hashlib.shake_256(str(refs).encode()).digest(size))  # does not compress: a cut is a cut
    write_image(Image("it", refs[0], ["/it"], {"/it": program}), path)
    program.unlink()
    return path


def rewritten(path: Path, change: Callable[[Any], Any], name: str = "manifest.json") -> Path:
    """The same archive with one JSON file of it changed; None removes the file."""
    other = path.with_suffix(".other")
    with tarfile.open(path) as old, tarfile.open(other, "w") as new:
        for member in old.getmembers():
            content = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == name:
                changed = change(json.loads(content))
                if changed is None:
                    continue
                content = json.dumps(changed).encode()
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    other.replace(path)
    return path


def compressed(path: Path, kind: str) -> Path:
    """Return the archive in another compression; the plain one is deleted."""
    target = path.with_name(f"{path.name}.{kind}")
    target.write_bytes({"xz": lzma.compress, "gz": gzip.compress}[kind](path.read_bytes()))
    path.unlink()
    return target


def taken(tmp_path: Path, folder: Path, own: Mapping[str, str] | None = None) -> tuple[MeshImages, list[str]]:
    """Return what a home in `tmp_path` reads from a folder, and its output."""
    said: list[str] = []
    found = prepare(Layout(tmp_path / "home"), own or {}, said.append, {VARIABLE: str(folder)})
    return found, said


def refusal(tmp_path: Path, folder: Path, own: Mapping[str, str] | None = None) -> str:
    """Return the one line with which a folder is refused."""
    with pytest.raises(ClusterError) as caught:
        taken(tmp_path, folder, own)
    text = str(caught.value)
    assert "\n" not in text
    assert list((tmp_path / "home").rglob("*.partial")) == []
    return text


def test_without_the_variable_nothing_is_looked_for(tmp_path: Path) -> None:
    assert find_folder({}) is None
    assert find_folder({VARIABLE: ""}) is None
    assert prepare(Layout(tmp_path / "home"), {}, print, {}) == MeshImages()
    assert not (tmp_path / "home").exists()


def test_a_missing_or_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=rf"{VARIABLE}=.*/nowhere is not a folder"):
        find_folder({VARIABLE: str(tmp_path / "nowhere")})
    with pytest.raises(ClusterError, match="no image archive"):
        find_folder({VARIABLE: str(tmp_path)})


def test_archives_lie_there_or_in_images_and_charts_go_by_their_own_names(tmp_path: Path) -> None:
    archive(tmp_path / "f" / "a.tar", REFERENCE)
    archive(tmp_path / "f" / "images" / "b.tar", "meshtrial.test/kuma/kuma-dp:2.14.3")
    chart = tmp_path / "f" / "charts" / "kuma-2.14.3"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: kuma\nversion: 2.14.3\n")
    packed = tmp_path / "f" / "charts" / "linkerd-crds-2026.6.3.tgz"
    with tarfile.open(packed, "w:gz") as tar:
        member = tarfile.TarInfo("linkerd-crds/Chart.yaml")
        member.size = len(b"name: linkerd-crds\n")
        tar.addfile(member, io.BytesIO(b"name: linkerd-crds\n"))
    found, said = taken(tmp_path, tmp_path / "f")
    assert found.references == (REFERENCE, "meshtrial.test/kuma/kuma-dp:2.14.3")
    assert found.charts == {"kuma": str(chart), "linkerd-crds": str(packed)}
    assert found.archives == (str(tmp_path / "f" / "a.tar"), str(tmp_path / "f" / "images" / "b.tar"))  # no copies
    assert sorted(said) == ["mesh images: reading a.tar", "mesh images: reading b.tar"]  # two are read in parallel
    (chart / "Chart.yaml").unlink()
    assert "kuma-2.14.3 is not a Helm chart" in refusal(tmp_path, tmp_path / "f")


def test_charts_that_lie_elsewhere_are_named_by_path(tmp_path: Path) -> None:
    archive(tmp_path / "f" / "a.tar", REFERENCE)
    chart = tmp_path / "elsewhere" / "consul-chart"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text("name: consul\nversion: 1.9.9\n")
    environ = {VARIABLE: str(tmp_path / "f"), CHARTS: str(chart)}
    found = find_folder(environ)
    assert found is not None
    assert found.charts == {"consul": chart}
    with pytest.raises(ClusterError, match=rf"{CHARTS}: /nowhere is not there"):
        find_folder({**environ, CHARTS: os.pathsep.join((str(chart), "/nowhere"))})
    with pytest.raises(ClusterError, match="are both the chart consul"):
        find_folder({**environ, CHARTS: os.pathsep.join((str(chart), str(chart)))})


def test_two_charts_of_one_name_are_refused(tmp_path: Path) -> None:
    archive(tmp_path / "f" / "a.tar", REFERENCE)
    for name in ("new", "old"):
        (tmp_path / "f" / "charts" / name).mkdir(parents=True)
        (tmp_path / "f" / "charts" / name / "Chart.yaml").write_text("name: kuma\n")
    assert "are both the chart kuma" in refusal(tmp_path, tmp_path / "f")


def test_sums_beside_archives_are_checked(tmp_path: Path) -> None:
    path = archive(tmp_path / "f" / "images" / "a.tar", REFERENCE)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    sums = path.with_name("SHA256SUMS")
    sums.write_text(f"{digest} *./a.tar\n")
    assert taken(tmp_path, tmp_path / "f")[0].references == (REFERENCE,)
    sums.write_text(f"{'0' * 64}  a.tar\n")
    assert "a.tar is not what SHA256SUMS says" in refusal(tmp_path, tmp_path / "f")
    sums.write_text(f"{digest}  a.tar\n{digest}  b.tar.xz\n{digest}  README.md\n")
    assert "names b.tar.xz, which is not there" in refusal(tmp_path, tmp_path / "f")
    sums.write_text("")
    assert "a.tar is not in SHA256SUMS" in refusal(tmp_path, tmp_path / "f")


@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_a_compressed_archive_is_unpacked_once(tmp_path: Path, kind: str) -> None:
    plain = archive(tmp_path / "f" / "a.tar", REFERENCE)
    content = plain.read_bytes()
    compressed(plain, kind)
    found, said = taken(tmp_path, tmp_path / "f")
    assert said == [f"mesh images: reading a.tar.{kind}"]
    assert found.references == (REFERENCE,)
    (unpacked,) = map(Path, found.archives)
    assert unpacked.is_relative_to(tmp_path / "home")
    assert unpacked.read_bytes() == content
    assert taken(tmp_path, tmp_path / "f") == (found, [])  # nothing new, nothing read
    compressed(archive(tmp_path / "f" / "a.tar", "meshtrial.test/kuma/kuma-cp:2.14.4"), kind)
    newer, said = taken(tmp_path, tmp_path / "f")
    assert newer.references == ("meshtrial.test/kuma/kuma-cp:2.14.4",)
    assert said
    assert not unpacked.exists()  # files that are no longer archives are removed


@pytest.mark.parametrize("kind", ["", "xz", "gz"])
@pytest.mark.parametrize("kept", [0.9, 0.5, 0.0001])
def test_a_truncated_archive_is_refused(tmp_path: Path, kind: str, kept: float) -> None:
    path = archive(tmp_path / "f" / "a.tar", REFERENCE)
    path = compressed(path, kind) if kind else path
    whole = path.read_bytes()
    path.write_bytes(whole[: max(1, int(len(whole) * kept))])
    text = refusal(tmp_path, tmp_path / "f")
    assert path.name in text
    assert "again" in text or "not a tar archive" in text


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "f" / "a.tar", REFERENCE)
    whole = path.read_bytes()
    cases: dict[str, Callable[[Any], Any]] = {
        "holds no image: it has no manifest.json": lambda _: None,
        "holds no image;": lambda _: [],
        "without a name": lambda images: [{**images[0], "RepoTags": None}],
        "lacks other/layer.tar": lambda images: [{**images[0], "Layers": ["other/layer.tar"]}],
        "list of images is not readable": lambda images: {"images": images},
    }
    for line, change in cases.items():
        path.write_bytes(whole)
        rewritten(path, change)
        assert line in refusal(tmp_path, tmp_path / "f")
    path.write_text("this is no archive" * 100)
    assert "not a tar archive" in refusal(tmp_path, tmp_path / "f")


def test_an_image_for_another_machine_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "f" / "a.tar", REFERENCE)
    with tarfile.open(path) as tar:
        config = json.load(tar.extractfile("manifest.json"))[0]["Config"]  # type: ignore[arg-type]
    rewritten(path, lambda content: {**content, "architecture": "s390x"}, config)
    assert f"is for s390x; this machine runs {ARCHITECTURE}" in refusal(tmp_path, tmp_path / "f")


def test_all_tags_of_an_image_are_found_by_the_names_that_nodes_know(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", REFERENCE)
    rewritten(path, lambda images: [{**images[0], "RepoTags": ["kuma/kuma-cp:2", "ghcr.io/x/y:1", "alone:1"]}])
    assert references(path, path) == ("docker.io/kuma/kuma-cp:2", "ghcr.io/x/y:1", "docker.io/library/alone:1")
    assert full_name("localhost/x:1") == "localhost/x:1"
    assert full_name("registry:5000/x:1") == "registry:5000/x:1"


def test_names_are_unique_and_never_the_clusters_own(tmp_path: Path) -> None:
    archive(tmp_path / "f" / "a.tar", REFERENCE)
    assert "image of the cluster itself" in refusal(tmp_path, tmp_path / "f", {"kuma": REFERENCE})
    archive(tmp_path / "f" / "b.tar", REFERENCE)
    assert "both hold" in refusal(tmp_path, tmp_path / "f")


def test_a_running_cluster_remembers_what_it_was_given(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert MeshImages.load(layout) == MeshImages()
    layout.run.mkdir()
    given = MeshImages("/f", ("/f/a.tar",), (REFERENCE,), {"kuma": "/f/charts/kuma"})
    given.save(layout)
    assert MeshImages.load(layout) == given
    assert given.reference("kuma-cp") == REFERENCE
    with pytest.raises(ClusterError, match="/f: no image by the name kuma-dp"):
        given.reference("kuma-dp")
    with pytest.raises(ClusterError, match="2 images by the name kuma-cp"):
        MeshImages("/f", (), (REFERENCE, "ghcr.io/kuma-cp@sha256:0"), {}).reference("kuma-cp")


def test_an_archive_that_a_node_refuses_is_named_with_the_reason(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (layout.run / "n1").mkdir(parents=True)
    (layout.run / "n1" / "imported").touch()
    wait_imported(layout, "n1")
    (layout.run / "n1" / "import-failed").write_text("/f/a.tar: ctr: wrong diff id\n/f/b.tar: ctr: another\n")
    with pytest.raises(ClusterError, match=r"n1 cannot import /f/a\.tar: ctr: wrong diff id \("):
        wait_imported(layout, "n1")


def test_the_image_with_kubectl_is_there_only_beside_meshes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.images.mkdir()
    (layout.images / "index.json").write_text(json.dumps({"kubectl": {"ref": "k"}, "pause": {"ref": "p"}}))
    assert BESIDE_MESHES == ("kubectl",)
    assert node_images(layout, meshes=False) == {"pause": "p"}
    assert node_images(layout, meshes=True) == {"kubectl": "k", "pause": "p"}


def test_a_mesh_without_images_is_skipped_by_name_and_fails_where_it_must_run() -> None:
    kuma = MeshImages(
        "/f", ("a",), tuple(f"x.test/kuma-{part}:1" for part in ("cp", "dp", "init")), {"kuma": "/f/charts/kuma"}
    )
    assert kuma.verdict("kuma", {}) == (False, "")
    assert MeshImages().verdict("istio", {}) == (False, "")
    nothing = f"kuma: its images are not here; {VARIABLE} names a folder of them"
    assert MeshImages().verdict("kuma", {}) == (False, nothing)
    assert MeshImages().verdict("kuma", {"CI": "true"}) == (False, nothing)
    both = {"CI": "true", VARIABLE: "/f"}
    assert kuma.verdict("linkerd", both) == (
        True,
        "linkerd: /f has no image controller, no image proxy, no chart linkerd-crds, no chart linkerd-control-plane",
    )
    assert kuma.verdict("linkerd", {VARIABLE: "/f"})[0] is False
    late = MeshImages().verdict("istio-ambient", both)
    assert late == (
        True,
        "istio-ambient: the running cluster, which was started without the folder, has no image ztunnel, "
        "no image install-cni",
    )
