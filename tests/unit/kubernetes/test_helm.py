import hashlib
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi, pod

from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.helm import Charts, Values, merged, put, read_chart, unknown_values
from meshtrial.testbed.kubernetes.meshdata import ExpectedVersion, Mesh, Release, find_meshes
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_missing_helm_says_where_to_get_it():
    with refused(MissingToolError):
        helm.program(KubernetesOptions(helm="helm-that-is-not-there"))


def test_a_program_that_fails_says_its_last_words():
    with refused(TestbedError):
        helm.run(["sh", "-c", "echo no such chart >&2; exit 3"], 10)
    with refused(TestbedError):
        helm.run(["sleep", "30"], 0.2)


def test_a_program_that_waits_for_nothing_is_given_up():
    looks = iter(["", "pod hook: runAsNonRoot and image will run as root"])
    with refused(TestbedError) as caught:
        helm.run(["sh", "-c", "sleep 30"], 20, watch=lambda: next(looks), every_s=0.05)
    assert caught.value.exit_code == 1
    assert helm.run(["sh", "-c", "sleep 0.2; echo done"], 20, watch=lambda: "", every_s=0.05) == "done\n"
    with refused(TestbedError):
        helm.run(["sleep", "30"], 0.3, watch=lambda: "", every_s=0.05)


AT = "/api/v1/namespaces/kuma-system/pods"
ROOT = "container has runAsNonRoot and image will run as root"


def add(api: FakeApi, name: str, state: dict, *, job: bool = True) -> None:
    status = {"name": "patch", "restartCount": 0, "ready": False, "state": state}
    item = pod("kuma-system", name, ready=False, containerStatuses=[status])
    if job:
        item["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "hook"}]
    api.add(f"{AT}/{name}", item)


def test_a_hook_that_waiting_will_not_mend_ends_the_wait(clock: Clock):
    api = FakeApi()
    add(api, "hook-1", {"waiting": {"reason": "CreateContainerConfigError", "message": ROOT}})
    watch = helm.HookWatch(api, ["kuma-system"])
    assert watch() == ""
    clock.now += 19
    assert watch() == ""
    clock.now += 2
    assert watch().startswith(f"pod hook-1: container patch: CreateContainerConfigError: {ROOT} (set runAsUser")
    assert helm.HookWatch(api, ["kuma-system"], settle=["CreateContainerConfigError"])() == ""


def test_a_hook_that_helm_deletes_is_remembered():
    api = FakeApi()
    add(api, "hook-1", {"terminated": {"exitCode": 3, "reason": "Error"}})
    api.logs = {"kuma-system/hook-1/patch": "starting\ncannot patch this\n"}
    watch = helm.HookWatch(api, ["kuma-system"])
    assert watch() == ""
    del api.objects[f"{AT}/hook-1"]
    assert watch() == ""
    assert watch.problem.endswith("Error, exit 3; last log lines of patch: starting cannot patch this")
    assert watch.evidence == {"failed-kuma-system-hook-1-patch.log": "starting\ncannot patch this\n"}


def test_other_pods_are_not_its_business(clock: Clock):
    api = FakeApi()
    add(api, "cp-1", {"waiting": {"reason": "ErrImagePull"}}, job=False)
    watch = helm.HookWatch(api, ["kuma-system"])
    watch()
    clock.now += 100
    assert watch() == ""
    assert watch.problem == ""


def test_a_silent_server_is_asked_again_later():
    api = FakeApi()
    api.silent = True
    assert helm.HookWatch(api, ["kuma-system"])() == ""
    assert len(api.asked) == 1


# --- charts -----------------------------------------------------------------------------------------------------------


def write_chart(folder: Path, name: str, values: dict, version: str = "1.2.3", **more: object) -> Path:
    folder.mkdir(parents=True)
    about = {"apiVersion": "v2", "name": name, "version": version, "appVersion": "9.9", **more}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(about))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    (folder / "templates").mkdir()
    (folder / "templates" / "x.yaml").write_text("# nothing\n")
    return folder


def packed(folder: Path, to: Path) -> Path:
    with tarfile.open(to, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return to


def mesh(*releases: Release, version: str = "1.2.3") -> Mesh:
    return Mesh("linkerd", "Linkerd", version, Path("/nowhere"), releases=releases)


def test_a_folder_and_an_archive_are_charts_as_they_lie(tmp_path: Path):
    folder = write_chart(tmp_path / "cp", "control-plane", {"a": {"b": 1}})
    archive = packed(folder, tmp_path / "cp.tgz")
    for path in (folder, archive):
        charts = Charts(KubernetesOptions())
        found = charts.of(mesh(Release("cp", path=str(path))), Release("cp", path=str(path)))
        assert (found.path, found.name, found.version, found.app_version) == (path, "control-plane", "1.2.3", "9.9")
        assert found.values == {"a": {"b": 1}}
        assert charts.record()["linkerd"]["cp"]["source"] == path.name  # its path does not belong in a record
    assert read_chart(archive, "", "").sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()


def test_a_folders_digest_is_of_its_files_alone(tmp_path: Path):
    folder = write_chart(tmp_path / "cp", "control-plane", {})
    before = read_chart(folder, "", "").sha256
    other = shutil.copytree(folder, tmp_path / "elsewhere")
    assert read_chart(other, "", "").sha256 == before
    (other / "templates" / "x.yaml").write_text("# something\n")
    assert read_chart(other, "", "").sha256 != before


@pytest.mark.parametrize("make", ["missing", "empty", "text"])
def test_what_is_no_chart_is_said_in_one_line(tmp_path: Path, make: str):
    path = tmp_path / "thing"
    if make == "empty":
        path.mkdir()
    if make == "text":
        path.write_text("hello")
    with refused(TestbedError, names=["linkerd", "cp", "thing"]):
        read_chart(path, "thing", "mesh linkerd, release cp")


def test_values_of_charts_inside_are_known_by_their_names(tmp_path: Path):
    dependencies = [
        {"name": "sub", "condition": "sub.on"},
        {"name": "twice", "alias": "first"},
        {"name": "twice", "alias": "second"},
    ]
    folder = write_chart(tmp_path / "top", "top", {"own": 1, "sub": {"x": 5}}, dependencies=dependencies)
    write_chart(folder / "charts" / "sub", "sub", {"x": 1, "y": 2, "global": {"g": 1}})
    twice = write_chart(tmp_path / "twice", "twice", {"z": 1})
    packed(twice, folder / "charts" / "twice-1.2.3.tgz")
    for path in (folder, packed(folder, tmp_path / "top.tgz")):
        known = read_chart(path, "", "").values
        assert known["sub"] == {"x": 5, "y": 2, "on": None, "global": {"g": 1}}
        assert known["first"] == known["second"] == {"z": 1}
        assert known["global"] == {"g": 1}
        assert unknown_values({"global": {"g": 2}, "sub": {"on": True}, "second": {"z": 2}}, known) == []
        assert unknown_values({"sub": {"z": 2}}, known) == ["sub.z is not known (did you mean first.z?)"]


def test_istios_charts_keep_their_defaults_one_level_lower(tmp_path: Path):
    folder = write_chart(tmp_path / "istiod", "istiod", {"_internal_defaults_do_not_set": {"global": {"hub": ""}}})
    assert read_chart(folder, "", "").values == {"global": {"hub": ""}}


@pytest.fixture
def puller(tmp_path: Path) -> str:
    """A stand-in for Helm that pulls local files and records its arguments."""
    program = tmp_path / "helm"
    folder = write_chart(tmp_path / "pulled", "control-plane", {"a": 1})
    packed(folder, tmp_path / "there.tgz")
    away = 'looks like "https://away.test" is not a valid chart repository or cannot be reached: no such host'
    missing = 'chart "x" version "0" not found in https://there.test repository'
    program.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/asked
case "$*" in
  *away.test*) echo 'Error: {away}' >&2; exit 1;;
  *"--version 0"*) echo 'Error: {missing}' >&2; exit 1;;
esac
for last; do :; done
cp {tmp_path}/there.tgz "$last/x-1.2.3.tgz"
"""
    )
    program.chmod(0o755)
    return str(program)


def asked(puller: str) -> list[str]:
    return (Path(puller).parent / "asked").read_text().splitlines()


def test_a_chart_is_fetched_once_a_session(puller: str):
    charts = Charts(KubernetesOptions(helm=puller))
    first, second = (Release(name, "control-plane", "https://there.test") for name in ("one", "two"))
    found = charts.of(mesh(first, second), first)
    assert charts.of(mesh(first, second), first) == charts.of(mesh(first, second), second) == found
    assert found.path.is_file()
    assert len(asked(puller)) == 1
    assert asked(puller)[0].startswith("pull control-plane --repo https://there.test --version 1.2.3 -d ")
    assert charts.record()["linkerd"] == {name: found.record() for name in ("one", "two")}
    assert charts.versions(mesh(first)) == {"chart one": f"1.2.3 (sha256:{found.sha256})"}
    assert charts.versions(mesh(Release("three"))) == {}
    assert found.record()["source"] == "https://there.test control-plane 1.2.3"
    charts.close()
    assert not found.path.exists()


def test_a_registry_is_asked_by_its_own_words(puller: str):
    release = Release("one", "control-plane", "oci://r.test/charts", version="7")
    Charts(KubernetesOptions(helm=puller)).of(mesh(release), release)
    assert asked(puller)[0].startswith("pull oci://r.test/charts/control-plane --version 7 -d ")


def test_a_repository_that_is_away_is_one_line_for_all_its_charts(puller: str):
    charts = Charts(KubernetesOptions(helm=puller))
    lines = set()
    for name in ("one", "two"):
        release = Release(name, name, "https://away.test")
        with pytest.raises(TestbedError) as caught:
            charts.of(mesh(release), release)
        lines.add(str(caught.value))
    assert len(lines) == 1
    why = 'looks like "https://away.test" is not a valid chart repository or cannot be reached: no such host'
    mend = "check the network and the version, or give the chart by meshes.<mesh>.charts.<release>.path"
    assert lines == {f"chart repository https://away.test cannot be reached ({why}); {mend}"}
    assert len(asked(puller)) == 1


def test_a_version_that_is_not_there_is_its_charts_own_problem(puller: str):
    release = Release("one", "x", "https://there.test", version="0")
    with refused(TestbedError):
        Charts(KubernetesOptions(helm=puller)).of(mesh(release), release)


def test_a_chart_of_the_declared_version_says_what_its_images_are_called(tmp_path: Path):
    release = Release("cp", path=str(write_chart(tmp_path / "cp", "cp", {}, version="1.2.3")))
    charts = Charts(KubernetesOptions())
    for names, called in ((("1.2.3",), ("1.2.3", "9.9")), (("own-tag",), ("own-tag",))):
        version = replace(mesh(release), declared=ExpectedVersion("old", names))
        charts.of(version, release)
        named = charts.named(version).declared
        assert named is not None
        assert named.names == called
    other = replace(mesh(release, version="1.2.4"), declared=ExpectedVersion("new", ("1.2.4",)))
    charts.of(other, release)
    assert charts.named(other) == other  # a chart of another version is no evidence for this one
    assert charts.named(mesh(release)) == mesh(release)


# --- values -----------------------------------------------------------------------------------------------------------


def test_values_follow_the_meshs_own_paths():
    choice = {
        "parameters": {"image_hub": "r.test", "node_selector": {"pool": "mesh"}},
        "values": {"istiod": {"pilot": 1}},
    }
    options = KubernetesOptions(meshes={"istio": choice}, proxy_cpu="1")
    mesh = find_meshes(options)["istio"]
    values = Values(options, mesh).of(mesh.releases[1])
    assert values["global"]["hub"] == "r.test"
    assert values["global"]["proxy"]["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert values["nodeSelector"] == {"pool": "mesh"}
    assert values["pilot"] == 1
    assert Values(options, mesh).of(mesh.releases[0]) == {}


def test_values_of_a_file_must_be_a_mapping():
    options = KubernetesOptions(meshes={"istio": {"values": {"istiod": "/nonexistent.yaml"}}})
    mesh = find_meshes(options)["istio"]
    with refused(UsageError):
        Values(options, mesh).of(mesh.releases[1])


def test_merge_is_helms():
    values: dict = {}
    put(values, "a.b.c", 1)
    assert merged(values, {"a": {"b": {"d": 2}}, "e": [1]}) == {"a": {"b": {"c": 1, "d": 2}}, "e": [1]}
    assert merged({"a": {"b": 1}}, {"a": 2}) == {"a": 2}


def versioned(said: dict, **base: object) -> tuple[KubernetesOptions, Mesh]:
    options = KubernetesOptions(meshes={"istio": {**base, "versions": {"1.30": said}}}, proxy_cpu="1")
    return options, find_meshes(options)["istio@1.30"]


def test_what_a_version_says_comes_after_what_all_of_them_say():
    base = {
        "parameters": {"image_hub": "r.test", "image_tag": "1.31.1", "proxy_cpu": "3"},
        "values": {"istiod": {"global": {"tag": "of-all", "variant": "distroless"}}},
    }
    options, mesh = versioned({"parameters": {"image_tag": "1.30.4", "proxy_cpu": ""}}, **base)
    values = Values(options, mesh).of(mesh.releases[1])["global"]
    # Its parameter wins over the values of all versions, and an empty one takes back what they say.
    assert (values["hub"], values["tag"], values["variant"]) == ("r.test", "1.30.4", "distroless")
    assert values["proxy"]["resources"]["limits"] == {"memory": "512Mi"}
    options, mesh = versioned({"values": {"istiod": {"global": {"tag": "own"}}}}, **base)
    layers = Values(options, mesh).layers(mesh.releases[1])
    assert layers[-1] == ("meshes.istio.versions.1.30.values.istiod", {"global": {"tag": "own"}})
    plain = find_meshes(options)["istio"]
    assert Values(options, plain).of(plain.releases[1])["global"]["tag"] == "of-all"


def test_a_digest_tells_values_apart_and_not_installations():
    digests = set()
    for level in ("info", "debug", "info"):
        choice = {"values": {"linkerd-control-plane": {"proxy": {"logLevel": level}}}}
        options = KubernetesOptions(meshes={"linkerd": choice})
        mesh = find_meshes(options)["linkerd"]
        # Each has keys of its own, which are no part of what it is.
        digests.add(Values(options, mesh).digest(mesh.releases[1]))
    assert len(digests) == 2


KNOWN = {
    "hub": "docker.io",
    "proxy": {"logLevel": "info", "resources": {"requests": {"cpu": "100m"}}},
    "proxyInit": {"resources": {"cpu": {"limit": "", "request": ""}}},
    "env": {},
    "extra": None,
    "volumes": [],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "podAnnotations": {"scrape": "true"},
    "meshConfig": {"prometheus": True},
    "global": {"tag": ""},
}


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"hub": "r.test", "proxy": {"logLevel": "warning"}}, []),
        ({"hubb": "r.test"}, ["hubb is not known (did you mean hub?)"]),
        ({"proxy": {"loglevel": "x"}}, ["proxy.loglevel is not known (did you mean proxy.logLevel?)"]),
        ({"tag": "1"}, ["tag is not known (did you mean global.tag?)"]),
        ({"zzz": {"a": 1}}, ["zzz is not known"]),
        # A value that is empty in the chart accepts any content.
        ({"env": {"A": {"b": 1}}, "extra": {"x": 1}, "volumes": [{"name": "v"}]}, []),
        # Kubernetes reads these values, not the chart.
        ({"nodeSelector": {"pool": "mesh"}, "podAnnotations": {"mine": "1"}}, []),
        ({"proxy": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}}, []),
        (
            {"proxyInit": {"resources": {"limits": {"cpu": "2"}}}},
            ["proxyInit.resources.limits is not known (did you mean proxyInit.resources.cpu.limit?)"],
        ),
        ({"meshConfig": {"accessLogFile": ""}}, ["meshConfig.accessLogFile is not known"]),
    ],
)
def test_what_a_chart_does_not_have_is_said_with_what_comes_near(values: dict, lines: list[str]):
    assert unknown_values(values, KNOWN) == lines


def test_what_a_chart_takes_without_listing_it_is_free_below():
    values = {
        "meshConfig": {"accessLogFile": ""},
        "other": {"deep": {"a": 1}, "else": 2},
        "global": {"platform": "gke"},
    }
    assert unknown_values(values, KNOWN, ["meshConfig", "other.deep", "global.platform"]) == ["other.else is not known"]
