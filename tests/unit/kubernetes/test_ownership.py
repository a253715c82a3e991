import pytest

from meshtrial.testbed.kubernetes.apply import Owner, label, verdict

OWNER = Owner("mesh comparison", "abc123")


def namespace(**labels: str) -> dict:
    return {"metadata": {"name": "trial", "labels": labels or None}}


def ours(owner: str) -> dict:
    return {"metadata": {"name": "trial", "labels": {**OWNER.labels, "meshtrial.dev/owner": owner}}}


def test_absent_and_our_own_may_be_used():
    assert verdict(None, OWNER, "kind") == ""
    assert verdict(ours("abc123"), OWNER, "kind") == ""


@pytest.mark.parametrize("found", [namespace(), namespace(app="shop"), {"metadata": {"name": "trial"}}])
def test_somebody_elses_is_left_alone(found: dict):
    line = verdict(found, OWNER, "kind")
    assert "was not made by meshtrial" in line
    assert "left alone" in line
    assert "\n" not in line


def test_another_sessions_says_how_to_clean_up():
    line = verdict(ours("other"), OWNER, "kind")
    assert "belongs to another session" in line
    assert "meshtrial clean --context kind --study mesh-comparison" in line


def test_owners_are_unique_and_their_labels_are_legal():
    assert Owner("s").id != Owner("s").id
    assert label("Scale-out to 600 endpoints! (full)") == "scale-out-to-600-endpoints-full"
    assert label("***") == "study"
    assert len(label("x" * 99)) <= 40
