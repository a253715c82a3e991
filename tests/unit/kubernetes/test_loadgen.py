from __future__ import annotations

import io
import tarfile

import pytest
from refused import refused

from meshtrial.errors import TestbedError
from meshtrial.load.generators import GeneratorCall, Target, publishable
from meshtrial.testbed.kubernetes import loadgen
from meshtrial.testbed.kubernetes.loadgen import command_line, parse_usage, unpack


def test_cpu_time_of_the_generator_itself():
    usage = parse_usage("10.02 1.25 0.50 120 7\n", "measure")
    assert (usage.role, usage.window_s, usage.cpu_s, usage.switches) == ("load generator", 10.02, 1.75, 127)


def test_a_failed_generators_time_is_on_the_last_line():
    assert parse_usage("Command exited with non-zero status 1\n0.60 0.04 0.00 6 14\n", "x").cpu_s == pytest.approx(0.04)


@pytest.mark.parametrize("text", ["", "10.0 1.0\n"])
def test_a_missing_time_is_not_zero(text: str):
    with refused(TestbedError):
        parse_usage(text, "measure")


def test_command_line_carries_target_headers_and_files():
    argv = command_line(
        GeneratorCall(("-qps", "100"), "measure"), Target("http://a/", (("Authorization", "Bearer t"),))
    )
    assert argv[:4] == ("fortio", "load", "-qps", "100")
    assert argv[-3:] == ("-H", "Authorization:Bearer t", "http://a/")
    assert argv[-1] == "http://a/"
    assert "-access-log-file" in argv


def test_a_record_keeps_no_token_and_no_path():
    argv = ("/somewhere/bin/fortio", "load", "-H", "Authorization:Bearer secret", "http://a/")
    assert publishable(argv) == ("fortio", "load", "-H", "Authorization: (run-time token)", "http://a/")


def test_archive_of_results():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("./result.json")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    assert unpack(buffer.getvalue()) == {"result.json": b"{}"}


@pytest.mark.parametrize("offset_s", [-0.25, 0.0, 3.0])
@pytest.mark.parametrize("way_s", [0.0, 0.003, 0.02])
@pytest.mark.parametrize("seen_s", [0.0, 0.005, 0.01])
def test_the_truth_lies_within_the_error(offset_s: float, way_s: float, seen_s: float):
    # A message takes its time, sometimes longer; a question and its answer take it in both directions. The second
    # answer came earlier.
    heard = [offset_s + seen_s + way_s + more for more in (0.004, 0.0, 0.1)]
    found = loadgen.estimate_offset(heard, 2 * way_s, 0.01)
    assert abs(found.offset_s - offset_s) <= found.error_s + 1e-12
    assert found.error_s == pytest.approx(way_s + 0.005)
