"""What a reader sees first: the answer in a sentence and in a picture, and how sure one may be of it."""

from __future__ import annotations

from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.figures.forest import answer
from meshtrial.report.markup import Fragment, box, bullets, heading, join, part
from meshtrial.report.tables.headline import headline_shown, notes_on_headline, rests_on, twin_called, twin_sentences


def first_screen(data: StudyData) -> Fragment:
    """The headline, what it rests on, and the picture of all primary ratios beside it."""
    sure, picture = join(heading("How sure"), box(bullets(how_sure(data)))), answer(data)
    said = headline_shown(data)
    # What failed stands below, among what could be wrong.
    html = part("answer", said.html, picture.embedded, sure.html)
    return Fragment(html, "\n\n".join([said.text, sure.text, repr(picture)]))


def how_sure(data: StudyData) -> list[str]:
    """What the verdicts rest on, how often such verdicts are wrong, and what this study could have found."""
    return [
        rests_on(data),
        *_errors(data),
        *_detectable(data),
        *([] if twin_called(data) else twin_sentences(data)),
        *notes_on_headline(data),
    ]


def _errors(data: StudyData) -> list[str]:
    if not any(row.p_adjusted is not None for row in data.verdicts):
        return []
    study = data.plan.study
    level = wording.declared_percent(study.alpha)
    wrong = "among the treatments of one response at one load"
    if len(study.families()) > 1:
        wrong = (
            f"from {study.baseline.name} in one response at one load, and at most as many one between the treatments"
        )
    return [
        f"Where nothing differs, at most {level} of such studies call a difference {wrong}. Intervals "
        "and verdicts come from the same exact test.",
        "An interval speaks of this session: how far another day, or a machine in another state, lies from it, only "
        "another study tells (meshtrial compare).",
    ]


def _detectable(data: StudyData) -> list[str]:
    """The smallest effects that would be found four times out of five, the middle one of each response's contrasts."""
    found = []
    for name in data.plan.study.primary:
        rows = [row for row in frames.verdicts(data, response=name, twin=False) if row.mde is not None]
        if rows:
            middle = sorted(rows, key=lambda row: row.mde or 0.0)[len(rows) // 2]
            found.append(f"{wording.mde_text(middle)} at {wording.short_label(name)}")
    if not found:
        return []
    return [
        "With this much noise, so many blocks find four times out of five an effect of about "
        f"{wording.listing(found)}; smaller ones may stay inconclusive."
    ]
