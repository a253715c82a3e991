"""Kubernetes quantities as numbers: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""

from __future__ import annotations

from typing import Any

from kubernetes.utils import quantity as _untyped_quantity

from meshtrial.errors import UsageError

_quantity: Any = _untyped_quantity


def cpu_millis(quantity: str) -> float:
    """``250m`` is 250, ``2`` is 2000."""
    try:
        return float(_quantity.parse_quantity(quantity) * 1000)
    except ValueError:
        raise UsageError(f"CPU {quantity!r}: must be a number of cores or of thousandths, e.g. 2 or 500m") from None


def memory(quantity: str) -> float:
    """``128Mi`` in bytes."""
    try:
        return float(_quantity.parse_quantity(quantity))
    except ValueError:
        raise UsageError(f"memory {quantity!r}: must be a number of bytes, or with a unit, e.g. 128Mi") from None
