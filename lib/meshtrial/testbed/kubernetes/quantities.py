"""Kubernetes quantities as numbers: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""

from __future__ import annotations

from meshtrial.errors import UsageError


def cpu_millis(quantity: str) -> float:
    """``250m`` is 250, ``2`` is 2000."""
    try:
        return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000
    except ValueError:
        raise UsageError(f"CPU {quantity!r}: allowed is a number of cores or of thousandths, e.g. 2 or 500m") from None


def memory(quantity: str) -> float:
    """``128Mi`` in bytes."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}
    for unit, size in units.items():
        if quantity.endswith(unit):
            return float(quantity[: -len(unit)]) * size
    return float(quantity)
