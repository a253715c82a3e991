"""Names of responses and units as people write them: ``p50``, ``p99.9_ms``, ``mean``, or the registry's own.

Opinion: a latency without a unit is refused, because an absolute margin of 0.1 ms on seconds taken for milliseconds
would decide the verdict in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from meshtrial import stats
from meshtrial.errors import UsageError
from meshtrial.parameters import split_list
from meshtrial.responses import REGISTRY, Response
from meshtrial.studies.common import margins_of

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SHORT = re.compile(
    r"(?:latency_)?(?P<what>p50|p75|p90|p99|p99\.9|p999|mean|avg|average)(?:_(?P<unit>s|ms|us|ns))?", re.IGNORECASE
)
_ALIAS = {"p99.9": "p999", "avg": "mean", "average": "mean"}


def find_response(name: str, unit: str = "") -> tuple[Response, float | None]:
    """A response by any of its names, and what a value is multiplied by to be stored.

    Parameters
    ----------
    name : str
    unit : str, optional
        The unit that stands beside the value.

    Returns
    -------
    tuple
        The registered response, or a stand-in of kind ``level`` for one that is not known. The factor is None for a
        latency whose unit nobody gave.
    """
    found = _SHORT.fullmatch(name.strip())
    if found:
        what = found["what"].lower()
        latency = REGISTRY[f"latency_{_ALIAS.get(what, what)}_s"]
        given = unit or (found["unit"] or "").lower() or ("s" if name in REGISTRY else "")
        if given and given not in SECONDS:
            raise UsageError(f"{name}: the unit {given!r} is no time; allowed are {', '.join(SECONDS)}")
        return latency, SECONDS[given] if given else None
    if name in REGISTRY:
        known = REGISTRY[name]
        return known, SECONDS.get(unit, 1.0) if known.unit == "ms" else 1.0
    return Response(name, name, "level", unit, 1.0), 1.0


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


def margins_for(texts: Sequence[str], metrics: Sequence[Response]) -> Mapping[str, stats.Margin]:
    """The margin of every metric: the method's default, with what the user gives in its place.

    ``p50=5%`` and ``p50=0.2ms`` as in a study; ``5%`` alone is for all metrics. A response that is not registered has
    no margin unless one is given.
    """
    items = [item for text in texts for item in split_list(text)]
    given = [item if "=" in item else f"{metric.name}={item}" for item in items for metric in metrics]
    pairs = {}
    for item in dict.fromkeys(given):
        name, _, value = item.partition("=")
        pairs[find_response(name.strip())[0].name] = value.strip()
    known = margins_of(",".join(f"{name}={value}" for name, value in pairs.items() if name in REGISTRY))
    margins = {name: stats.Margin(m.relative, m.floor or None) for name, m in known.items()}
    for name, value in pairs.items():
        if name not in REGISTRY:
            margins[name] = stats.Margin(_percentage(name, value))
    return {metric.name: margins[metric.name] for metric in metrics if metric.name in margins}


def _percentage(name: str, text: str) -> float:
    try:
        if not text.endswith("%"):
            raise ValueError(text)
        return float(text[:-1]) / 100
    except ValueError:
        raise UsageError(f"margin {name}={text}: allowed is e.g. {name}=5%") from None
