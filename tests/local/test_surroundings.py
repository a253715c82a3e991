"""Studies in real surroundings: behind a company's proxy, and in a folder whose name looks like a pattern."""

import shutil
import socket
from pathlib import Path

import pytest
from commandline import SAMPLE, meshtrial
from local.studies import SHORT, executed, only, short, study_of, without_twin

ODD = "études [1] %s {x} *? a=b"
PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def test_a_proxy_of_the_environment_is_never_asked_by_a_study_on_this_machine(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as company:
        company.setblocking(False)
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{company.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        treatments = "none,sidecar+mtls+observability,sidecar+mtls+opa"
        study = study_of("ambient_vs_no_mesh", SHORT | {"treatments": treatments, "blocks": 2})
        runs = executed(without_twin(study)).records()
        assert [run.reasons for run in runs if not run.valid] == []
        assert {run.treatment for run in runs} == set(treatments.split(","))
        with pytest.raises(BlockingIOError):  # nobody knocked
            company.accept()


@pytest.fixture
def odd(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / ODD
    monkeypatch.setenv("MESHTRIAL_DATA", str(folder / "data"))
    monkeypatch.setenv("MESHTRIAL_REPORTS", str(folder / "reports"))
    return folder


def test_every_command_takes_a_folder_by_whatever_name(odd):
    study = odd / "data" / SAMPLE.parent.name / SAMPLE.name
    shutil.copytree(SAMPLE, study)

    def done(*command: object) -> str:
        code, said, complaint = meshtrial(*command)
        assert code == 0, (command, said, complaint)
        return said

    same = "plan sealed, 24 runs intact, 34 verdicts reproduced"
    assert same in done("verify", study)
    done("report", study)
    assert same in done("verify", only(odd / "reports", "ambient*.html"))
    done("export", study, "--out", odd / "export [1]")
    assert len(list((odd / "export [1]").iterdir())) == 5
    packed = odd / "packed [1].tar.xz"
    done("pack", study, "--out", packed)
    assert same in done("verify", packed)
    done("plan", "--from", study, "--json", odd / "plan [1].json")
    done("cost", study, "--core-hour", "1", "--gib-hour", "1")
    done("history", study.parent.name, "--out", odd / "history [1].html")
    assert str(study) in done("status")
    done("site", odd / "site [1]", study)
    assert only(odd / "site [1]" / "studies", "*/*/records.tar.xz").is_file()


def test_a_study_runs_in_a_folder_by_whatever_name(odd):
    given = short(blocks=2, treatments="none,sidecar+mtls")
    code, said, complaint = meshtrial("run", "ambient_vs_no_mesh", *given)
    assert code in (0, 3), (said, complaint)  # 3 if the machine was busy
    assert str(only(odd / "data", "*/*")) in said
    assert only(odd / "reports", "ambient*.html").is_file()
