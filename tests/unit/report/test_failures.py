"""The table of failed requests: kinds as columns, of every run, and nothing where nobody knows."""

from dataclasses import replace

from meshtrial.report.tables.failures import failed_requests


def changed(data, treatment: str, **more):
    """The study with the first run of a treatment changed."""
    first = next(run for run in data.runs if run.treatment == treatment)
    reconnects = more.pop("reconnects", 0.0)
    other = replace(first, responses={**first.responses, "reconnects": reconnects}, **more)
    return replace(data, runs=tuple(other if run is first else run for run in data.runs))


def quiet(data):
    runs = tuple(replace(run, failures={}, responses={**run.responses, "error_ratio": 0.0}) for run in data.runs)
    return replace(data, runs=runs)


def test_every_kind_is_a_column_and_an_invalid_run_counts_too(data):
    data = changed(quiet(data), "node-proxy", failures={"503": 12, "reset": 1}, valid=False, reconnects=4.0)
    lines = failed_requests(data).text.splitlines()
    head = next(line for line in lines if "503" in line)
    assert head.index("503") < head.index("reset") < head.index("reconnects")
    (row,) = (line for line in lines if line.startswith("node-proxy"))
    assert {"12", "1", "4"} <= set(row.split())
    assert not any(line.startswith("none ") for line in lines)


def test_without_a_failure_one_sentence_says_so_and_records_that_do_not_know_the_kinds_say_nothing(data):
    assert failed_requests(quiet(data)).text == "No request failed."
    assert failed_requests(changed(quiet(data), "none", failures={})).text == "No request failed."
    old = quiet(data)
    runs = [replace(run, responses={**run.responses, "error_ratio": 0.001}) for run in old.runs]
    assert failed_requests(replace(old, runs=tuple(runs))).text == ""
