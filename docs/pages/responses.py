"""The responses, with their margins."""

from meshtrial.design.changes import LABELS
from meshtrial.design.responses import REGISTRY, Response
from pages.tables import plain, under


def responses(text: str) -> str:
    """Every response with its margin; names that differ only in percentile, part or change share a row."""
    from meshtrial.design.responses import default_scales
    from meshtrial.report import wording

    by_difference = {name for name, scale in default_scales().items() if scale == "difference"}
    judged: dict[str, dict[str, tuple[str, ...]]] = {}
    described = []
    for one in REGISTRY.values():
        pattern, label = name_pattern(one)
        if one.margin is None:
            described.append((f"`{one.name}`", one.label, wording.unit(one)))
            continue
        margin = plain(wording.margin_text(one.name, one.margin).removeprefix("±"))
        cells = (label, wording.unit(one), f"{margin}, by added amount" if one.name in by_difference else margin)
        judged.setdefault(pattern, {})[one.name] = cells
    rows = []
    for pattern, members in judged.items():
        label, unit, margin = next(iter(members.values()))
        alike = len({cells[2] for cells in members.values()}) == 1
        rows.append((f"`{pattern}`", label, unit, margin if alike else "of `{p}`"))
    return under(under(text, "## With verdicts", rows), "## Described only", described)


def name_pattern(response: Response) -> tuple[str, str]:
    """Return name and label of a response with its percentile, part of the system or change left open."""
    if response.percentile is not None:
        name = response.name.replace(f"{response.percentile.key}_s", "{p}_s")
        return name, response.label.replace(response.percentile.label, "percentile of")
    if (part := response.part) is not None:
        return response.name.replace(part.key, "{part}"), response.label.replace(f", {part.label}", "")
    for change, label in LABELS.items():
        if response.name.endswith(f"_{change}_s"):
            return response.name.replace(f"_{change}_s", "_{change}_s"), response.label.replace(label, "change")
    return response.name, response.label
