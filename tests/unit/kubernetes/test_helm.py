from refused import refused
from unit.kubernetes.conftest import Clock
from unit.kubernetes.fakeapi import FakeApi, pod

from meshtrial.errors import MissingToolError, TestbedError
from meshtrial.testbed.kubernetes import helm
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
