"""The recorded studies that pages quote, and how an effect is written."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from meshtrial.records.schema import VerdictRow
from pages.tables import plain

Made = TypeVar("Made")
MESHES = "mesh_comparison-20261125T022942Z-a6e76e54"
AT_200 = "mesh_comparison-20261126T023809Z-4289d2f7"
FEATURES = {
    "Istio": "feature_impact-20261124T194022Z-df1edfcf",
    "ambient with a waypoint": "feature_impact-20261125T025325Z-5aab3a31",
    "Kuma": "feature_impact-20261126T041823Z-f66225f7",
    "Linkerd": "feature_impact-20261126T072603Z-32a77933",
}
# Beside idle neighbours and alone: each was made because p50 was inconclusive in those before.
BESIDE = (
    "feature_impact-20261126T021125Z-dccabaca",
    "feature_impact-20261126T030549Z-53769de1",
    "feature_impact-20261126T063935Z-1ae2e8f3",
)
DELAYED = "calibration-20261125T105420Z-88959172"
# Key exchanges on new connections of two sidecars, on connections that stay open, and on new ones of Istio's
EXCHANGED = (
    "feature_impact-20261128T145855Z-62be2a59",
    "feature_impact-20261128T214826Z-5236f35f",
    "feature_impact-20261129T004312Z-84595667",
)
# By heading: sessions, and later ones of a study of its own that these did not know
SESSIONS = {
    "Six sessions, and three later ones": (
        "ambient_vs_no_mesh-20261128T130525Z-c9efe0a4",
        "ambient_vs_no_mesh-20261128T150421Z-90dd52d8",
    ),
    "Three sessions of two meshes, and two later ones": (
        "mesh_comparison-20261128T133947Z-128b3258",
        "mesh_comparison-20261128T212549Z-0eaa4c6b",
    ),
}
CHANGED = "propagation-20261125T105822Z-ca8a6414"
OBEYED = "propagation-20261125T155117Z-fc8d9e67"
UNCALLED = ("scale_out-20261125T203358Z-bfdc5fd2", "scale_out-20261126T033821Z-2b3b905f")
HELD = ("proxy_largest_memory_bytes", "data_plane_memory_bytes", "control_plane_memory_bytes")
# Idle connections beside busy ones, and what of the proxies and of the application grows with them
CONNECTED = "mesh_comparison-20261128T233402Z-b488caae"
OPENED = ("proxy_largest_memory_bytes", "data_plane_memory_bytes", "app_memory_bytes")
# By heading: generated systems, and the studies of a single hop from which they were predicted
PREDICTED = {
    "Predictions": (
        "prediction-20261128T181826Z-1b3bb526",
        ("building_blocks-20261128T170612Z-0fe32dbd", "building_blocks-20261128T181314Z-10d676d2"),
    ),
    "Predictions for meshes": (
        "prediction-20261128T210205Z-96b5bd67",
        ("building_blocks-20261128T203151Z-813aa110",),
    ),
}
RELEASES = {
    "HTTP/1.1": "mesh_comparison-20261128T180915Z-e55330fc",
    "HTTP/2": "mesh_comparison-20261128T213140Z-069369c6",
}
QUOTED = ("latency_p50_s", "path_cpu_s_per_request")


def recorded(sample: str, use: Callable[[Any], Made]) -> Made:
    """Return what a function makes of a recorded study of the checkout."""
    from meshtrial.inference import read_study
    from meshtrial.records.listing import samples
    from meshtrial.records.store import StudyStore

    with tempfile.TemporaryDirectory() as folder:
        return use(read_study(StudyStore.open(samples()[sample], Path(folder))))


def ratio_of(row: VerdictRow) -> str:
    """An effect as a cell: ratio, interval, verdict."""
    from meshtrial.report import wording

    ratio = f"{wording.change(row.ratio, row.ci_high)} ({wording.change_interval(row.ci_low, row.ci_high)}), "
    return plain(f"{'' if row.ratio is None else ratio}{short_verdict(row)}")


def short_verdict(row: VerdictRow) -> str:
    """A verdict, for a difference with its qualifier; without the size of a new study or the deciding floor."""
    return f"{row.verdict}, {row.qualifier}" if row.verdict.different and row.qualifier else str(row.verdict)


def effect_of(row: VerdictRow) -> str:
    """The effect that the verdict is of, its interval, and the verdict."""
    from meshtrial.report import wording

    return plain(f"{wording.effect(row)} ({wording.effect_interval(row)}), {wording.verdict_text(row)}")


def effect_in_short(row: VerdictRow) -> str:
    """The effect that the verdict is of, its interval, and the verdict in short."""
    from meshtrial.report import wording

    return plain(f"{wording.effect(row)} ({wording.effect_interval(row)}), {short_verdict(row)}")
