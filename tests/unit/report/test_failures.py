"""Failed requests and changes under load as tables, of valid and failed runs."""

from dataclasses import replace

from meshtrial.report.tables.failures import changes, failed_requests


def with_failures(data, treatment: str, **more):
    """Return the study with failed requests in the first run of a treatment."""
    first = next(run for run in data.runs if run.treatment == treatment)
    reconnects = more.pop("reconnects", 0.0)
    other = replace(first, responses={**first.responses, "reconnects": reconnects}, **more)
    return replace(data, runs=tuple(other if run is first else run for run in data.runs))


def quiet(data):
    runs = tuple(replace(run, failures={}, responses={**run.responses, "error_ratio": 0.0}) for run in data.runs)
    return replace(data, runs=runs)


def test_every_kind_is_a_column_and_an_invalid_run_counts_too(data):
    data = with_failures(quiet(data), "node-proxy", failures={"503": 12, "reset": 1}, valid=False, reconnects=4.0)
    lines = failed_requests(data).text.splitlines()
    head = next(line for line in lines if "503" in line)
    assert head.index("503") < head.index("reset") < head.index("reconnects")
    (row,) = (line for line in lines if line.startswith("node-proxy"))
    assert {"12", "1", "4"} <= set(row.split())
    assert not any(line.startswith("none ") for line in lines)


def test_without_a_failure_one_sentence_says_so_and_records_that_do_not_know_the_kinds_say_nothing(data):
    assert failed_requests(quiet(data)).text == "No request failed."
    assert failed_requests(with_failures(quiet(data), "none", failures={})).text == "No request failed."
    old = quiet(data)
    runs = [replace(run, responses={**run.responses, "error_ratio": 0.001}) for run in old.runs]
    assert failed_requests(replace(old, runs=tuple(runs))).text == ""


def change(name: str, first_s: float | None, all_s: float | None, **failed: int) -> dict[str, object]:
    return {"name": name, "first_s": first_s, "all_s": all_s, "error_s": 0.002, "failed": failed}


def with_changes(data, treatment: str, *made: dict[str, object]):
    """Return the study with these changes in the first run of a treatment."""
    first = next(run for run in data.runs if run.treatment == treatment)
    other = replace(first, valid=False, extra={**first.extra, "changes": list(made)})
    return replace(data, runs=tuple(other if run is first else run for run in data.runs))


def test_times_what_was_never_obeyed_and_what_failed_meanwhile(data):
    made = (
        change("deny", 0.010, 0.030, **{"403": 70}),
        change("deny", 0.020, None, **{"403": 20}),
        {**change("deny", None, None), "asked": False},
        change("weight", 0.005, 0.005, reset=1),
    )
    lines = changes(with_changes(data, "node-proxy", *made)).text.replace("\xa0", " ").splitlines()
    (deny,) = (line for line in lines if line.startswith("denial"))
    assert "node-proxy" in deny
    assert "15.0 ms" in deny  # of 10 and 20
    assert "30.0 ms" in deny  # of 30 and never
    assert "90 403, as requested" in deny
    assert deny.split("30.0 ms")[-1].split()[:2] == ["1", "1"]  # never, not asked
    assert "2.00 ms" in deny
    (weight,) = (line for line in lines if line.startswith("route's weight"))
    assert weight.rstrip().count("as requested") == 0
    assert "1 reset" in weight


def test_a_study_that_changes_nothing_says_so_in_one_sentence(data):
    assert changes(data).text == "No run of this study changed anything under load."
