"""The bridge, a network namespace for the control plane and for each node, and the machine's one link to them."""

from testcluster.procs import call
from testcluster.settings import (
    API_ADDRESS,
    CONTROL_PLANE,
    HOST_ADDRESS,
    HOST_LINK,
    NODE_NETWORK,
    NODES,
    Layout,
    node_address,
    node_pods,
)


def _in(layout: Layout, namespace: str, *argv: str) -> None:
    call(["nsenter", f"--net={layout.netns(namespace)}", "--", *argv])


def make_networks(layout: Layout) -> None:
    """Make all of it; `down` finds it by name."""
    (layout.run / "netns").mkdir()
    for namespace in (CONTROL_PLANE, *NODES):
        file = layout.netns(namespace)
        file.touch()
        # A mount of our own holds them, because `ip netns` would leave a mount on /run/netns.
        call(["unshare", f"--net={file}", "--", "true"])
        _in(layout, namespace, "ip", "link", "set", "lo", "up")
    prefix = NODE_NETWORK.prefixlen
    _in(layout, CONTROL_PLANE, "ip", "link", "add", "br0", "type", "bridge")
    _in(layout, CONTROL_PLANE, "ip", "addr", "add", f"{API_ADDRESS}/{prefix}", "dev", "br0")
    _in(layout, CONTROL_PLANE, "ip", "link", "set", "br0", "up")
    plane = str(layout.netns(CONTROL_PLANE))
    call(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", plane])
    _in(layout, CONTROL_PLANE, "ip", "link", "set", "host", "master", "br0", "up")
    call(["ip", "addr", "add", f"{HOST_ADDRESS}/{prefix}", "dev", HOST_LINK])
    call(["ip", "link", "set", HOST_LINK, "up"])
    for node in NODES:
        address = node_address(node)
        peer = ["peer", "name", "eth0", "netns", str(layout.netns(node))]
        _in(layout, CONTROL_PLANE, "ip", "link", "add", node, "type", "veth", *peer)
        _in(layout, CONTROL_PLANE, "ip", "link", "set", node, "master", "br0", "up")
        _in(layout, node, "ip", "addr", "add", f"{address}/{prefix}", "dev", "eth0")
        _in(layout, node, "ip", "link", "set", "eth0", "up")
        # The bridge's namespace has no route out, so packets of pods to the world end there.
        _in(layout, node, "ip", "route", "add", "default", "via", API_ADDRESS)
    for node in NODES:
        to_pods = ("ip", "route", "add", str(node_pods(node)), "via", node_address(node))
        call([*to_pods, "dev", HOST_LINK])
        for namespace in (CONTROL_PLANE, *NODES):
            if namespace != node:
                _in(layout, namespace, *to_pods)
