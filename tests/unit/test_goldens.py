"""No change of the code changes the results of recorded studies, unless the goldens say so."""

import json

import goldens
import pytest

KEPT = json.loads(goldens.KEPT.read_text())
EACH = [(kind, name) for kind, (_, listed) in goldens.KINDS.items() for name in listed]


@pytest.mark.parametrize(("kind", "name"), EACH, ids=lambda one: one)
def test_it_comes_to_what_it_came_to(kind: str, name: str) -> None:
    of, listed = goldens.KINDS[kind]
    made = json.loads(json.dumps(of(listed[name])))
    kept = KEPT[kind][name]
    different = {key: (kept.get(key), made.get(key)) for key in kept | made if kept.get(key) != made.get(key)}
    assert different == {}


def test_nothing_is_kept_that_is_gone() -> None:
    assert {kind: set(listed) for kind, listed in KEPT.items()} == {
        kind: set(listed) for kind, (_, listed) in goldens.KINDS.items()
    }
