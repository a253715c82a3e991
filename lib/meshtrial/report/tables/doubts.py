"""What could be wrong, in one list: read it before acting on a verdict. The numbers behind it stand under validity."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Fragment, box, bullets, heading, join
from meshtrial.report.tables.headline import REFERENCE_NOTE, twin_called, twin_sentences
from meshtrial.report.tables.validity import course_of_runs, excluded

_ONE_MACHINE = (
    "Client, proxies, app and load generator share one machine: its milliseconds hold there, ratios travel better, and "
    "a verdict holds for the load that was measured."
)


def doubts(data: StudyData) -> Fragment:
    """Runs that failed, what was excluded, an A/A test that failed, warnings of primary contrasts, and the limits."""
    called = bool(twin_called(data))
    gone = excluded(data)
    said = [
        *(twin_sentences(data) if called else []),
        *gone,
        *course_of_runs(data),
        *wording.warnings(frames.contrasts(data, primary=True, family="").rows),
        *_limits(data),
    ]
    alarm = called or bool(gone)
    return join(heading("What could be wrong"), box(bullets(said), alarm=alarm))


def _limits(data: StudyData) -> list[str]:
    if data.plan.study.backend == "local":
        return [REFERENCE_NOTE, _ONE_MACHINE]
    return ["The verdicts hold for this cluster, these versions, this placement and this load."]
