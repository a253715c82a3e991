"""Before publication, everything in a study that identifies its machine is reported; new records have nothing."""

import json

import pytest
from commandline import SAMPLE, meshtrial

from meshtrial.records.machine import machine_names


def test_paths_and_contexts_are_told_once_for_each_kind_of_file(tmp_path):
    def write(name: str, content: object) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    write("plan.json", {"study": {"options": {"parameters": {"cluster_file": "/home/alice/c.yaml", "app": "/echo"}}}})
    write("environment.json", {"testbed": {"context": "alice@work", "options": {"context": "", "cni": "/opt/cni/bin"}}})
    for run in ("1", "2"):
        write(f"runs/{run}/run.json", {"options": [{"cluster_file": "/tmp/c.yaml"}], "target": "http://x/tmp/y"})
        write(f"runs/{run}/logs/app.log", f"Data directory is /tmp/{run}, and /tmp/z")
    write("runs/1/latency.parquet", "/home/alice/x")
    write("runs/1/fortio.json", "{ damaged /Users/bob/x")
    assert machine_names(sorted(path for path in tmp_path.rglob("*") if path.is_file())) == [
        "environment.json names the context of a kubeconfig: context=alice@work",
        "plan.json names a file of the machine that made it: cluster_file=/home/alice/c.yaml",
        "fortio.json names a file of the machine that made it: /Users/bob/x",
        "app.log (2 of them) names a file of the machine that made it: /tmp/1",
        "run.json (2 of them) names a file of the machine that made it: cluster_file=/tmp/c.yaml",
    ]


@pytest.mark.parametrize(("without", "lines"), [((), 1), (("--without", "logs"), 0)])
def test_the_command_that_packs_a_study_tells_what_it_packs(tmp_path, without, lines):
    code, out, _ = meshtrial("pack", SAMPLE, "--out", tmp_path / "x.tar.xz", *without)
    assert code == 0
    said = out.splitlines()[1:]
    assert len(said) == lines
    assert all(line.startswith("app.log (24 of them) names a file of the machine that made it: /tmp/") for line in said)
