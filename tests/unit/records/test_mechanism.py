"""A study's system call counts: written, read back, and refused if incomplete."""

import json

import pytest
from refused import refused

from meshtrial.errors import RecordError
from meshtrial.records.mechanism import FILE, READS, WRITES, ComponentCalls, Mechanism, read_mechanism, write_mechanism

APP = ComponentCalls("app", "app", {"read": 100, "recvfrom": 20, "writev": 100, "futex": 7}, 250)
ONE = Mechanism("none", "200rps-4c", 100, 50, (APP,))


def test_it_is_read_back_as_it_was_written(tmp_path):
    assert read_mechanism(tmp_path) == ()
    write_mechanism(tmp_path, (ONE,))
    assert read_mechanism(tmp_path) == (ONE,)
    assert (APP.of(READS), APP.of(WRITES)) == (120, 100)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(schema="x"),
        lambda data: data["treatments"][0].update(traced="many"),
        lambda data: data["treatments"][0].update(untraced=0),
        lambda data: data["treatments"][0].pop("components"),
        lambda data: data.update(treatments=None),
        lambda data: data["treatments"][0].update(of=1),
    ],
)
def test_what_is_not_whole_is_one_line(tmp_path, change):
    write_mechanism(tmp_path, (ONE,))
    data = json.loads((tmp_path / FILE).read_text())
    change(data)
    (tmp_path / FILE).write_text(json.dumps(data))
    with refused(RecordError):
        read_mechanism(tmp_path)
