"""Names of files and clusters of one machine in files that are to be published, so that the publisher can decide.

Present records hold no paths, but older ones do, and a record is never changed. CPU, kernel, versions and the names of
the cluster and its nodes are not listed, because readers need them and placements refer to them.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

# Folders of users and sessions; those of systems (/usr, /etc) are the same on every machine.
_PATH = re.compile(r"""(?<![\w.:/-])/(?:home|Users|root|tmp|private|mnt|media|srv|Volumes)/[^\s"'`,;:|<>)\]}]+""")
_TEXTS = {".json", ".txt", ".log", ".html", ".md", ".yaml"}


def machine_names(files: Iterable[Path]) -> list[str]:
    """Return a line for each kind of file and field that names a path or a kubeconfig's context."""
    counted: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for path in files:
        if path.suffix in _TEXTS:
            found = {(path.name, name): text for name, text in _names_in(path)}
            counted.update(found.keys())
            examples = found | examples
    lines = []
    for (file, name), times in counted.items():
        where = f"{file} ({times} of them)" if times > 1 else file
        what = "the context of a kubeconfig" if name == "context" else "a file of the machine that made it"
        lines.append(f"{where} names {what}: {name}{'=' * bool(name)}{examples[file, name]}")
    return lines


def _names_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each path or context in a file, with its field; the field is empty where the file has none."""
    text = path.read_text(encoding="utf-8", errors="replace")
    leaves: Iterable[tuple[str, str]] = [("", text)]
    if path.suffix == ".json":
        with suppress(ValueError):  # a damaged file is searched as text
            leaves = list(_leaves(json.loads(text), ""))
    for name, value in leaves:
        if name == "context" and value:
            yield name, value
        elif found := _PATH.search(value):
            yield name, found.group()


def _leaves(data: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, str(key))
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value, name)
    elif isinstance(data, str):
        yield name, data
