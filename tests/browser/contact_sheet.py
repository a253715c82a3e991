"""One picture of all sample reports in all settings, for visual review: ``make contact-sheet SHEET=OUT.png``.

One row per report, one column per setting; ``--each FOLDER`` also keeps every full screenshot. Pictures are not kept in
git: they are made again from the records.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from browser import opening, reports
from PIL import Image, ImageDraw

from meshtrial.records.listing import samples

COLUMN_PX, GAP_PX, LABEL_PX = 440, 24, 26
TALLEST_PX = 1800  # of a page in the sheet; longer pages are cut
PIECE_PX = 8000  # Chromium's longest picture is twice this


def main(argv: Sequence[str] | None = None) -> int:
    """Make the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("studies", nargs="*", type=Path, help="folders, packed studies or pages; default: the samples")
    parser.add_argument("--each", type=Path, metavar="FOLDER", help="every screenshot in full")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as made, opening.browser() as chromium:
        pages = {path.stem: path for path in given.studies if path.suffix == ".html"}
        studies = {path.name.partition(".")[0]: path for path in given.studies if path.suffix != ".html"}
        pages |= reports.make_all(studies or ({} if pages else samples()), Path(made))
        folder = given.each or Path(made) / "screenshots"
        folder.mkdir(parents=True, exist_ok=True)
        shots = {
            (name, setting.name): screenshot(chromium, page, setting, folder / f"{name}-{setting.name}.png")
            for name, page in pages.items()
            for setting in opening.SETTINGS.values()
        }
        sheet(shots, list(pages)).save(given.out)
    print(given.out)
    return 0


def screenshot(chromium: opening.Browser, page: Path, setting: opening.Setting, out: Path) -> Path:
    """Return a whole page as one picture, joined from pieces that Chromium can draw."""
    with opening.opened(chromium, setting) as view:
        view.goto(page.as_uri())
        height = int(view.evaluate("document.documentElement.scrollHeight"))
        whole = Image.new("RGB", (setting.width, height), "white")
        for piece in range(math.ceil(height / PIECE_PX)):
            top = piece * PIECE_PX
            clip = {"x": 0, "y": top, "width": setting.width, "height": min(PIECE_PX, height - top)}
            part = out.with_suffix(f".{piece}.png")
            view.screenshot(path=part, full_page=True, clip=clip, animations="disabled")
            with Image.open(part) as drawn:
                whole.paste(drawn, (0, top))
            part.unlink()
    whole.save(out)
    return out


def sheet(shots: dict[tuple[str, str], Path], names: Sequence[str]) -> Image.Image:
    """The screenshots side by side, each as wide as its column."""
    rows = [(name, [_small(shots[name, setting]) for setting in opening.SETTINGS]) for name in names]
    heights = [LABEL_PX + max(one.height for one in drawn) + GAP_PX for _, drawn in rows]
    width = GAP_PX + len(opening.SETTINGS) * (COLUMN_PX + GAP_PX)
    made = Image.new("RGB", (width, GAP_PX + sum(heights)), "#9aa3ad")
    pen, top = ImageDraw.Draw(made), GAP_PX
    for (name, drawn), height in zip(rows, heights, strict=True):
        for column, (setting, one) in enumerate(zip(opening.SETTINGS, drawn, strict=True)):
            left = GAP_PX + column * (COLUMN_PX + GAP_PX)
            pen.text((left, top + 4), f"{setting}: {name}"[:68], fill="black")
            made.paste(one, (left, top + LABEL_PX))
        top += height
    return made


def _small(shot: Path) -> Image.Image:
    with Image.open(shot) as whole:
        height = max(1, round(whole.height * COLUMN_PX / whole.width))
        small = whole.resize((COLUMN_PX, height), Image.Resampling.LANCZOS)
    return small.crop((0, 0, COLUMN_PX, min(height, TALLEST_PX)))


if __name__ == "__main__":
    raise SystemExit(main())
