from refused import refused

from meshtrial.errors import MissingToolError, TestbedError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.freshness import Blocks
from meshtrial.testbed.kubernetes.options import KubernetesOptions


def test_missing_helm_says_where_to_get_it():
    with refused(
        MissingToolError,
        "helm = 'helm-that-is-not-there' is not on PATH; install Helm 3 or later "
        "(https://helm.sh/docs/intro/install/), or set helm=PATH",
    ):
        helm.program(KubernetesOptions(helm="helm-that-is-not-there"))


def test_a_program_that_fails_says_its_last_words():
    with refused(TestbedError, "sh -c echo no such chart >&2; exit 3: exit 3: no such chart"):
        helm.run(["sh", "-c", "echo no such chart >&2; exit 3"], 10)
    with refused(TestbedError, "sleep 30: no end within 0.2 s"):
        helm.run(["sleep", "30"], 0.2)


def test_a_program_that_waits_for_nothing_is_given_up():
    looks = iter(["", "pod hook: runAsNonRoot and image will run as root"])
    with refused(TestbedError, "sh -c sleep 30: given up: pod hook: runAsNonRoot and image will run as root") as caught:
        helm.run(["sh", "-c", "sleep 30"], 20, watch=lambda: next(looks), every_s=0.05)
    assert caught.value.exit_code == 1
    assert helm.run(["sh", "-c", "sleep 0.2; echo done"], 20, watch=lambda: "", every_s=0.05) == "done\n"
    with refused(TestbedError, "sleep 30: no end within 0.3 s"):
        helm.run(["sleep", "30"], 0.3, watch=lambda: "", every_s=0.05)


def test_blocks_begin_with_another_load_or_a_treatment_seen_already():
    blocks = Blocks()
    seen = [("10rps", "none"), ("10rps", "istio"), ("10rps", "none"), ("20rps", "istio"), ("20rps", "none")]
    assert [blocks.enter(*run) for run in seen] == [True, False, True, True, False]
