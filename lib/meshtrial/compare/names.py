"""What the user asks to be compared: metrics by the names that people write, and a margin for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshtrial.design.parameters import split_list
from meshtrial.design.responses import REGISTRY, Response, declared_margins, default_margins, find_response
from meshtrial.errors import UsageError
from meshtrial.margin import Margin


def metrics_of(text: str) -> tuple[Response, ...]:
    """Responses of ``p50,p99``, each once.

    Raises
    ------
    UsageError
        For one that is described only and never judged, or a list without any.
    """
    found = [find_response(item)[0] for item in split_list(text)]
    for response in found:
        if response.kind == "quality":
            raise UsageError(f"--metrics {response.name}: is described only, it gets no verdict")
    if not found:
        raise UsageError("--metrics: names no response, e.g. --metrics p50,p99")
    return tuple({response.name: response for response in found}.values())


def margins_for(texts: Sequence[str], metrics: Sequence[Response]) -> Mapping[str, Margin]:
    """The margin of every metric: the default, with what the user gives in its place.

    ``p50=5%`` and ``p50=0.2ms`` as in a study; ``5%`` alone is for all metrics. A response that is not registered has
    no margin unless one is given.
    """
    items = [item for text in texts for item in split_list(text)]
    compared = {metric.name for metric in metrics}
    for item in items:
        name = find_response(item.partition("=")[0])[0].name if "=" in item else ""
        if name and name not in REGISTRY and name not in compared:
            raise UsageError(f"margin {item}: no response is called {name}; compared are {', '.join(sorted(compared))}")
    given = [item if "=" in item else f"{metric.name}={item}" for item in items for metric in metrics]
    margins = declared_margins(dict.fromkeys(given), default_margins(), lambda name: find_response(name)[0])
    return {metric.name: margins[metric.name] for metric in metrics if metric.name in margins}
