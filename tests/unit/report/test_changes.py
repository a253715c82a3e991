"""The table of changes under load: what was never obeyed stands there, and is no number."""

from dataclasses import replace

from meshtrial.report.tables.failures import changes


def change(name: str, first_s: float | None, all_s: float | None, **failed: int) -> dict[str, object]:
    return {"name": name, "first_s": first_s, "all_s": all_s, "error_s": 0.002, "failed": failed}


def with_changes(data, treatment: str, *made: dict[str, object]):
    """The study with these changes in the first run of a treatment."""
    first = next(run for run in data.runs if run.treatment == treatment)
    other = replace(first, valid=False, extra={**first.extra, "changes": list(made)})
    return replace(data, runs=tuple(other if run is first else run for run in data.runs))


def test_times_what_was_never_obeyed_and_what_failed_meanwhile(data):
    made = (
        change("deny", 0.010, 0.030, **{"403": 70}),
        change("deny", 0.020, None, **{"403": 20}),
        change("weight", 0.005, 0.005, reset=1),
    )
    lines = changes(with_changes(data, "node-proxy", *made)).text.replace("\xa0", " ").splitlines()
    (deny,) = (line for line in lines if line.startswith("denial"))
    assert "node-proxy" in deny
    assert "15.0 ms" in deny  # of 10 and 20
    assert "30.0 ms" in deny  # of 30 and never
    assert "90 403, as requested" in deny
    assert "2.00 ms" in deny
    (weight,) = (line for line in lines if line.startswith("route's weight"))
    assert weight.rstrip().count("as requested") == 0
    assert "1 reset" in weight


def test_a_study_that_changes_nothing_says_so_in_one_sentence(data):
    assert changes(data).text == "No run of this study changed anything under load."
