"""Generated systems on a cluster: what each service calls, and how it is called."""

import pytest
from refused import refused
from unit.kubernetes.rendering import LOAD, TOKENS, find, of_kind, our_meshes

from meshtrial.design.generated import generated
from meshtrial.design.study import Treatment
from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes import workload
from meshtrial.testbed.kubernetes.apps import read_app
from meshtrial.testbed.kubernetes.options import KubernetesOptions

SEED = 2  # seven services: one calls three, three call one, three call none
SYSTEM = generated(SEED, LOAD.rps, LOAD.connections, on_cluster=True)
NAMES = [call.callee for call in SYSTEM.calls]


def rendered(text: str, protocol: str = "http1") -> workload.Rendered:
    options, treatment = KubernetesOptions(), Treatment.parse(f"{text}@system-{SEED}")
    app = read_app(options, treatment.app, (protocol,), {f"system-{SEED}": SYSTEM})
    mesh = our_meshes().get(treatment.dataplane)
    return workload.render(workload.Setup(options, "trial", treatment, LOAD, app, mesh, TOKENS))


def test_each_service_calls_its_callees_at_the_same_time_and_listens_where_it_is_called():
    found = rendered("none")
    assert (found.app_pods, found.target.url) == (len(NAMES), "http://service-1.trial.svc.cluster.local:8080/")
    calls = {name: [call.callee for call in SYSTEM.calls if call.caller == name] for name in NAMES}
    assert {len(called) for called in calls.values()} == {0, 1, 3}
    for name, called in calls.items():
        pod = find(found, "Deployment", name)["spec"]["template"]
        assert pod["metadata"]["labels"]["meshtrial.dev/component"] == name
        assert pod["spec"]["serviceAccountName"] == name
        assert find(found, "Service", name)["spec"]["selector"] == {"app": name}
        assert find(found, "Service", name)["spec"]["ports"][0]["port"] == 8080
        (container,) = pod["spec"]["containers"]
        arguments = container["args"]
        urls = [f"http://{one}.trial.svc.cluster.local:8080/" for one in called]
        if called:
            assert arguments[arguments.index("-M") + 1].split() == ["8080", *urls]
            assert "-multi-serial-mode" not in arguments
        else:
            assert "-M" not in arguments
        assert ("-http-port=8080" in arguments) == (not called)


@pytest.mark.parametrize("mesh", [name for name, mesh in our_meshes().items() if not mesh.reference])
def test_every_mesh_carries_a_system(mesh: str):
    assert {*NAMES, "load"} <= of_kind(rendered(mesh), "Deployment").keys()


def test_what_a_system_on_a_cluster_has_not():
    with refused(UsageError, names=["sidecar+mtls", f"system-{SEED}"]):
        rendered("sidecar+mtls")
    with refused(UsageError, names=["none"]):
        rendered("none+delay-3000us")
    with refused(UsageError, names=["http1", "h2"]):
        rendered("none", "h2")
    with refused(UsageError, names=["system-7", "prediction"]):
        read_app(KubernetesOptions(), "system-7", ("http1",))
