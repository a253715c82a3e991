"""Sessions that end early: by Ctrl-C, in the middle of a deployment, by a crash. Nothing of them may remain."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from test_backend_support import options_for, owned_namespaces
from testcluster import Cluster

from meshtrial import waiting
from meshtrial.testbed.kubernetes.cleanup import clean_cluster
from meshtrial.testbed.kubernetes.client import Cluster as Api
from meshtrial.testbed.kubernetes.options import KubernetesOptions

_SCRIPT = """
import json, sys
from pathlib import Path
from meshtrial.design.load import FixedRate
from meshtrial.design.study import Treatment
from meshtrial.testbed.kubernetes.testbed import KubernetesTestbed
bed = KubernetesTestbed(json.loads(sys.argv[1]))
load = FixedRate(rps=50, connections=2, duration_s=60)
try:
    deployment = bed.deploy(Treatment.parse(sys.argv[2]), load, "echo")
    try:
        print("standing", flush=True)
        from meshtrial.load import fortio
        deployment.generate(fortio.calls(load, "measure"), Path(sys.argv[3]), 90)
    finally:
        deployment.close()
finally:
    bed.close()
"""


def session(cluster: Cluster, treatment: str, folder: Path, namespace: str) -> subprocess.Popen[str]:
    options = json.dumps(options_for(cluster, namespace=namespace))
    argv = [sys.executable, "-c", _SCRIPT, options, treatment, str(folder)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    if line.strip() != "standing":
        child.wait(30)
        raise AssertionError(child.stderr.read() if child.stderr else line)
    return child


def test_ctrl_c_while_it_is_deployed_leaves_nothing_either(cluster: Cluster, tmp_path: Path):
    options = json.dumps(options_for(cluster, namespace="early"))
    argv = [sys.executable, "-c", _SCRIPT, options, "istio+mtls", str(tmp_path)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    waiting.until(lambda: "istio-system" in owned_namespaces(cluster), 60, 0.2)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert "KeyboardInterrupt" in err
    assert owned_namespaces(cluster) == []
    assert "istio.io" not in cluster.kubectl("get", "crd", "-o", "name")


def test_clean_after_a_crash(cluster: Cluster, tmp_path: Path):
    child = session(cluster, "istio+mtls", tmp_path, "crashed")
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    options = KubernetesOptions.read(options_for(cluster))
    api = Api(options.kubeconfig)
    cluster.kubectl("create", "namespace", "bystander")
    try:
        assert {"crashed", "crashed-probe", "istio-system"} <= set(owned_namespaces(cluster))
        assert clean_cluster(api, options, study="another-study").removed == ()
        # Its Lease is still valid, so for a minute the session seems to run.
        refused = clean_cluster(api, options, study="study")
        assert refused.removed == ()
        assert {"crashed", "crashed-probe", "istio-system"} <= set(refused.remaining)
        assert "is running (owner " in refused.lines[0]
        done = clean_cluster(api, options, study="study", force=True)
        assert done.remaining == ()
        assert {"crashed", "crashed-probe", "istio-system"} <= set(done.removed)
        assert owned_namespaces(cluster) == []
        assert "istio.io" not in cluster.kubectl("get", "crd", "-o", "name")
        assert "istio" not in cluster.kubectl("get", "mutatingwebhookconfiguration", "-o", "name")
        assert cluster.get("namespace", "bystander")["status"]["phase"] == "Active"
        assert clean_cluster(api, options).lines == (f"nothing of meshtrial's in {api.where()}",)
    finally:
        cluster.delete_namespace("bystander")
        clean_cluster(api, options, study="study", force=True)
