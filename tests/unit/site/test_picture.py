import dataclasses
import struct

import pytest

from meshtrial.site.picture import HEIGHT, WIDTH, picture


def size(png: bytes) -> tuple[int, ...]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize("copies", [1, 3, 40])
def test_it_is_of_the_size_that_previews_take_and_small(data, copies):
    many = [
        dataclasses.replace(row, treatment=f"{row.treatment}{n or ''}") for row in data.verdicts for n in range(copies)
    ]
    png = picture(dataclasses.replace(data, verdicts=tuple(many)))
    assert size(png) == (WIDTH, HEIGHT)
    assert len(png) < 150_000


def test_another_verdict_is_another_picture_and_the_same_one_the_same(data):
    first = picture(data)
    assert picture(data) == first
    changed = [dataclasses.replace(row, ratio=None if row.ratio is None else row.ratio * 1.01) for row in data.verdicts]
    assert picture(dataclasses.replace(data, verdicts=tuple(changed))) != first
