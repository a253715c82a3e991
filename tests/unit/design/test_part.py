import pytest
from refused import refused

from meshtrial.design.part import Part
from meshtrial.errors import UsageError


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
    with refused(UsageError, f"part = {text!r}: allowed is a number and how many parts there are, e.g. 1/3"):
        Part.parse(text)


def test_fewer_blocks_than_parts_are_refused():
    with refused(UsageError, "part = 1/3: 2 blocks cannot be divided into 3 parts"):
        Part(1, 3).blocks(2)
