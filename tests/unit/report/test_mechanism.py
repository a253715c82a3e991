"""System calls a request as a table, and nothing where nobody counted."""

from dataclasses import replace

from meshtrial.records.mechanism import ComponentCalls, Mechanism, write_mechanism
from meshtrial.report.tables.costs import mechanism


def test_counts_are_a_request_by_treatment_and_component(data, tmp_path):
    study = replace(data, path=tmp_path)
    assert mechanism(study).text == ""
    app = ComponentCalls("app", "app", {"read": 200, "write": 100, "futex": 50}, 25)
    proxy = ComponentCalls("<b>proxy</b>", "data plane", {"readv": 400}, None)
    both = (Mechanism("none", "200rps-4c", 100, 50, (app,)), Mechanism("node-proxy", "200rps-4c", 100, 50, (proxy,)))
    write_mechanism(tmp_path, both)
    shown = mechanism(study)
    row = next(line for line in shown.text.splitlines() if line.startswith("app "))
    assert row.split()[1:5] == ["3.50", "2", "1", "0.500"] or row.split()[1:5] == ["3.50", "2.00", "1.00", "0.500"]
    assert "read 2" in row
    assert shown.text.index("none") < shown.text.index("node-proxy")
    assert "<b>proxy</b>" not in shown.html
