"""Waypoints: proxies that a control plane makes of a Gateway, and what a study decides about them.

Nobody but the control plane makes their pods, so a study speaks to it by an overlay: a ConfigMap that the Gateway names
(``spec.infrastructure.parametersRef``) and that carries a part of a Deployment as text. Placement, limits and a policy
server are put into that text by the same patches that are made in Deployments.
"""

from collections.abc import Collection, Mapping

import yaml

from meshtrial.errors import UsageError
from meshtrial.testbed.kubernetes.manifests import NOTE, Json, Patch, containers, patch
from meshtrial.typed import parse_yaml

_OVERLAY = f"{NOTE}overlay"  # annotation of the ConfigMap: which of its keys holds the overlay


def deployment_in(manifest: Json) -> Json | None:
    """The part of a Deployment that an overlay holds, as a manifest; nothing for any other object.

    A text that is no part of a Deployment is a UsageError.
    """
    part = _part(manifest)
    return None if part is None else {"kind": "Deployment", "metadata": {"name": manifest["metadata"]["name"]}, **part}


def _part(manifest: Json) -> Json | None:
    key = _key(manifest)
    if not key:
        return None
    name = manifest["metadata"]["name"]
    try:
        part: Json = parse_yaml(manifest["data"][key].encode(), key)
        pod = part["spec"]["template"]["spec"]
    except (KeyError, TypeError, UsageError):
        raise UsageError(f"ConfigMap {name}: {key} must hold a Deployment's spec.template.spec as YAML") from None
    pod.setdefault("containers", [])
    return part


@patch
def overlaid(manifest: Json, *patches: Patch) -> None:
    """Make the patches in the Deployment inside of an overlay; other objects stay as they are."""
    whole, part = deployment_in(manifest), _part(manifest)
    if whole is None or part is None:
        return
    for one in patches:
        one(whole)
    manifest["data"][_key(manifest)] = yaml.safe_dump({name: whole[name] for name in part}, sort_keys=False)


def _key(manifest: Json) -> str:
    """Which of a ConfigMap's keys holds an overlay; empty where none does."""
    if manifest["kind"] != "ConfigMap":
        return ""
    return str((manifest["metadata"].get("annotations") or {}).get(_OVERLAY, ""))


@patch
def limited(manifest: Json, said: Mapping[str, object], names: Collection[str]) -> None:
    """Give these containers the limits of every proxy (``proxy_cpu``, ``proxy_memory``); requests stay as they lie."""
    wanted = {"cpu": said.get("proxy_cpu"), "memory": said.get("proxy_memory")}
    for container in containers(manifest):
        if container["name"] in names:
            limits = container.setdefault("resources", {}).setdefault("limits", {})
            limits.update({name: value for name, value in wanted.items() if value})


def is_late(manifest: Json) -> bool:
    """Whether it makes pods of its own, which wait, as the application does, until the generators have their nodes."""
    return str(manifest["kind"]) == "Gateway"
