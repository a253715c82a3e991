"""The parameters of the studies, and how long each study takes."""

import re
from collections.abc import Iterable
from pathlib import Path

from meshtrial.design.studies import STUDIES
from meshtrial.design.study import Study
from pages.tables import under


def built(name: str, **given: object) -> Study:
    """A study as its notebook builds it, by its name and the parameters that are given."""
    return STUDIES[name].build(STUDIES[name].SETTINGS.read({"seed": 1} | given))


def _value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
    return "empty" if value == "" else f"`{text}`"


def parameters(text: str) -> str:
    """All parameters, with the studies that have them; a default of fewer studies follows with their letters."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for study, module in STUDIES.items():
        for one in module.SETTINGS.settings.values():
            meaning, by_profile = re.subn("; (0|empty): set by the profile$", "", one.help.replace("|", "\\|"))
            default = "profile" if by_profile and not one.default else _value(one.text(one.default))
            allowed = ", ".join(f"`{value}`" for value in one.allowed if value) or one.bounds
            of = found.setdefault((one.name, "; ".join(filter(None, (meaning, allowed)))), {})
            of.setdefault(default, []).append(study)
    rows = []
    for (name, meaning), of in found.items():
        first, *others = sorted(of, key=lambda default: -len(of[default]))
        defaults = ", ".join([first, *(f"{default} ({initials(of[default])})" for default in others)])
        studies = [study for study in STUDIES if any(study in each for each in of.values())]
        rows.append((f"`{name}`", defaults, meaning, "all" if len(studies) == len(STUDIES) else initials(studies)))
    return under(text, "## All parameters", rows)


def initials(studies: Iterable[str]) -> str:
    """Return the footnote of the studies that have a parameter: the first letters of their names.

    There are as many letters as distinguish a study from all others.
    """

    def letters(study: str) -> str:
        lengths = range(1, len(study) + 1)
        return next(study[:n] for n in lengths if sum(other.startswith(study[:n]) for other in STUDIES) == 1)

    return "".join(letters(study).capitalize() for study in studies)


def durations(text: str) -> str:
    """How long every study takes, from its plans."""
    from meshtrial.design.plan import make_plan
    from meshtrial.design.settings import PROFILES
    from meshtrial.run import estimates

    rows = []
    for study, module in STUDIES.items():
        for backend in ("local", "kubernetes") if "context" in module.SETTINGS.settings else ("local",):
            cells = []
            for profile in PROFILES:
                plan = make_plan(built(study, profile=profile, backend=backend))
                besides = estimates.expected_overhead_s(plan, (), Path("nowhere"))
                cells.append(f"{_span(estimates.remaining_s(plan, plan.runs, besides))} ({len(plan.runs)})")
            rows.append((f"`{study}`" if backend == "local" else "on a cluster", *cells))
    return under(text, "# Durations", rows)


def _span(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 36 * 3600 else f"{seconds / 86400:.1f} days"
