import contextlib
import random
from typing import Any

import pytest
from refused import refused

from meshtrial.errors import RecordError, UsageError
from meshtrial.records import parts
from meshtrial.records.parts import Part


@pytest.mark.parametrize(
    ("of", "blocks", "sizes"), [(1, 5, [5]), (2, 5, [3, 2]), (3, 12, [4, 4, 4]), (4, 10, [3, 3, 2, 2]), (5, 5, [1] * 5)]
)
def test_the_parts_are_neighbouring_blocks_and_each_block_is_in_one(of, blocks, sizes):
    parts = [list(Part(number, of).blocks(blocks)) for number in range(1, of + 1)]
    assert [len(part) for part in parts] == sizes
    assert [block for part in parts for block in part] == list(range(1, blocks + 1))


def test_it_is_written_as_it_is_read():
    assert Part.parse(" 2/3 ") == Part(2, 3)
    assert str(Part(2, 3)) == "2/3"


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/3", "-1/3", "1.0/3", "٣/٣", "1/99999"])
def test_what_is_no_part_is_refused(text):
    with refused(UsageError):
        Part.parse(text)


def test_fewer_blocks_than_parts_are_refused():
    with refused(UsageError):
        Part(1, 3).blocks(2)


def test_a_folder_holds_all_blocks_or_says_which(small_plan):
    assert parts.blocks_here(small_plan, {}) == (1, 2, 3, 4, 5, 6)
    described = {"part": parts.described(Part(2, 3), small_plan)}
    assert described == {"part": {"number": 2, "of": 3, "blocks": [3, 4]}}
    assert parts.part_of(small_plan, described) == Part(2, 3)
    assert parts.blocks_here(small_plan, described) == (3, 4)


def test_a_merged_one_names_the_place_of_every_block(small_plan):
    clusters = ({"context": "east"}, {"context": "", "cluster": "0123456789ab"}, {})
    listed = [
        {"part": parts.described(Part(number, 3), small_plan), "testbed": testbed}
        for number, testbed in enumerate(clusters, start=1)
    ]
    names = parts.session_of_block(small_plan, {"parts": listed})
    assert names == dict.fromkeys((1, 2), "part 1 (east)") | dict.fromkeys((3, 4), "part 2 (01234567)") | dict.fromkeys(
        (5, 6), "part 3"
    )
    assert parts.session_of_block(small_plan, {}) == {}


ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "1", "x" * 5000, 10**5000, [], {}, [1], {"number": 1}, float("nan"))


def test_whatever_it_says_it_is_a_part_of_the_plan_or_refused(small_plan):
    sound = parts.described(Part(1, 3), small_plan)
    rng = random.Random(1)
    for _ in range(2000):
        altered = dict(sound)
        altered[rng.choice(list(sound))] = rng.choice(ODD)
        for environment in ({"part": rng.choice((altered, *ODD[1:]))}, {"parts": rng.choice(([altered], *ODD[1:]))}):
            found: object = ()
            with contextlib.suppress(RecordError):
                parts.part_of(small_plan, environment)
                found = parts.places(small_plan, environment)
            assert found == ()


def test_the_blocks_of_another_division_are_refused(small_plan):
    with refused(RecordError):
        parts.part_of(small_plan, {"part": {"number": 1, "of": 3, "blocks": [1, 2, 3]}})
