"""The recorded studies: the samples of the checkout, and those recorded or unpacked on this machine."""

from pathlib import Path

from meshtrial import paths
from meshtrial.records import packed
from meshtrial.records.store import PLAN

SAMPLE = paths.CHECKOUT / "data" / "sample"


def listing() -> dict[str, Path]:
    """Return folder or packed file by ``<study>-<UTC>-<hash>``, first the samples, then the newest; each once."""
    recorded = _folders(paths.studies_root())
    # A sample that has been unpacked is opened in its folder.
    shipped = {name: recorded.get(name, path) for name, path in samples().items()}
    return shipped | {name: path for name, path in recorded.items() if name not in shipped}


def samples() -> dict[str, Path]:
    """Return the samples of the checkout, folders before packed ones."""
    files = sorted(SAMPLE.glob(f"*{packed.SUFFIX}"))
    return _folders(SAMPLE) | {path.name.removesuffix(packed.SUFFIX): path for path in files}


def recorded_in(root: Path, study: str = "*") -> list[Path]:
    """Return the folders of recorded studies, of all or of one name, the oldest of each name first."""
    return sorted(path.parent for path in root.glob(f"{study}/*/{PLAN}"))


def _folders(root: Path) -> dict[str, Path]:
    newest_first = sorted(recorded_in(root), key=lambda path: path.name, reverse=True)
    return {f"{path.parent.name}-{path.name}": path for path in newest_first}
