"""The site's first page: every study that it holds, searched and filtered in the browser; and all verdicts as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from meshtrial import __version__, paths
from meshtrial.errors import RecordError, UsageError
from meshtrial.records.store import PLAN, read_json, write_text
from meshtrial.report.markup import render
from meshtrial.report.pages import script
from meshtrial.site.head import Head
from meshtrial.site.published import SCHEMA, Published, as_json

INDEX, VERDICTS = "index.html", "verdicts.json"


def refuse_foreign(root: Path) -> None:
    """Refuse a folder that is no place for a site: the checkout, a study, one whose first page is not ours to replace.

    Raises
    ------
    UsageError
    """
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; give the folder of the site")
    if root == paths.CHECKOUT or (root / PLAN).exists():
        raise UsageError(f"{root}: is the checkout or a study; the folder of the site stands first, then studies")
    if not (root / INDEX).exists():
        return
    try:
        ours = read_json(root / VERDICTS).get("schema") == SCHEMA
    except RecordError:
        ours = False
    if not ours:
        raise UsageError(f"{root}: holds an {INDEX} that is of no site made here; give another folder")


def write_site_index(
    root: Path, studies: Sequence[Published], broken: Sequence[tuple[str, str]] = (), base_url: str = ""
) -> Path:
    """Write ``index.html`` and ``verdicts.json``.

    Parameters
    ----------
    root : Path
    studies : sequence of Published
        In the order in which they are listed.
    broken : sequence of (address, reason)
        Pages that are there and cannot be described; listed with their reason.
    base_url : str, optional
        Where the site will be served; with it there is a feed.

    Returns
    -------
    Path
        The page.
    """
    body = {"schema": SCHEMA, "studies": [study.to_dict() for study in studies]}
    write_text(root / VERDICTS, as_json(body))
    page = render(
        "site/index.html.j2",
        head=Head(
            title="Trials of service meshes",
            description="Recorded studies of what service meshes cost, with verdicts, data and how each was measured.",
            base_url=base_url,
            script=script("site/search.js"),
        ),
        studies=[(study, json.dumps(study.study.treatments)) for study in studies],
        names=sorted({study.study.name for study in studies}),
        backends=sorted({(study.study.backend, study.where) for study in studies}),
        treatments=sorted({name for study in studies for name in study.study.treatments}),
        broken=broken,
        version=__version__,
    )
    write_text(root / INDEX, page)
    return root / INDEX
