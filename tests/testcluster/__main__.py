"""The command ``tests/testcluster/cluster``."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from testcluster import clients, host, seal, teardown
from testcluster.build import build, missing
from testcluster.images import built_images, node_images
from testcluster.lifecycle import up
from testcluster.meshimages import MeshImages, prepare
from testcluster.recipes import BY_HAND, fingerprint
from testcluster.settings import CHECKOUT, HERE, CannotRunError, ClusterError, Layout, Options, in_ci
from testcluster.state import State

_TOOLS = ("kubectl", "helm", "istioctl")


def _say(line: str) -> None:
    print(f"cluster: {line}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster", description="A two-node Kubernetes on this machine, for the tests."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("preflight", help="say why this machine cannot run it (exit 1), or that it can")
    make = commands.add_parser("build", help="build the programs and images that are not current")
    make.add_argument(
        "--install-packages", action="store_true", help="install missing Debian packages (always done when CI is set)"
    )
    start = commands.add_parser("up", help="start it, after building what is missing")
    start.add_argument("--pin", action="store_true", help="half of the CPUs for each node's pods")
    start.add_argument("--housekeeping", default="1s", metavar="TIME", help="CPU sampling period (default 1s)")
    commands.add_parser("down", help="end it; exit 1 and say what is left, if anything is")
    commands.add_parser("status", help="what is up, what is left, what is built")
    commands.add_parser("images", help="references of the images that the nodes have")
    commands.add_parser("fingerprint", help="a key of everything that is built from sources, to name a CI cache")
    commands.add_parser(
        "unsealed", help="print the folder of this cluster's own tests, if they are to run: see seal.py"
    )
    commands.add_parser("seal", help="say that they passed with these sources ('make test-testcluster' does it)")
    for name in _TOOLS:
        commands.add_parser(name, help=f"{name} on the running cluster", add_help=False)
    return parser


def _status(layout: Layout) -> int:
    state = State.load(layout)
    if state is None:
        print("down")
    else:
        alive = {proc.name for proc in state.alive()}
        dead = [name for name in state.procs if name not in alive]
        if dead:
            print(f"broken, started by {state.owner}; not running: {', '.join(dead)}")
        else:
            print(f"{'up' if state.ready else 'starting'}, started by {state.owner}")
    for line in teardown.leftovers(layout):
        print(f"  {line}")
    print(f"home: {layout.home}; to build: {', '.join(missing(layout)) or 'nothing'}")
    return 0


def _run(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    layout = Layout.default()
    command = arguments.command
    if command == "preflight":
        if problems := host.reasons(layout):
            raise CannotRunError("; ".join(problems))
        _say("this machine can run it")
    elif command in ("build", "up"):
        if in_ci() or (command == "build" and arguments.install_packages):
            host.install_packages(_say)
        if packages := host.missing_packages():
            raise CannotRunError(f"missing packages: {' '.join(packages)}; add --install-packages as root")
        build(layout, _say)
        if command == "up":
            options = Options(pin=arguments.pin, housekeeping=arguments.housekeeping)
            up(layout, _say, options=options)
    elif command == "down":
        with teardown.shielded():
            teardown.down(layout, _say)
    elif command == "status":
        return _status(layout)
    elif command == "images":
        own = built_images(layout)
        foreign = MeshImages.load(layout) if layout.run.exists() else prepare(layout, own, _say)
        for name, reference in node_images(layout, meshes=bool(foreign.archives)).items():
            print(f"{name}\t{reference}")
        for reference in foreign.references:
            print(f"(mesh)\t{reference}")
    elif command == "fingerprint":
        print(fingerprint())
    elif command == "unsealed":
        if seal.fits():
            _say("its own tests passed with these sources; they are left out (--all runs them)")
        else:
            _say(
                "its sources changed since its own tests passed; they run too ('make test-testcluster' renews the seal)"
            )
            print(HERE.relative_to(CHECKOUT))
    elif command == "seal":
        seal.write()
    else:
        if not layout.kubeconfig.exists():
            raise ClusterError("no cluster is up")
        if wanted := [program for program in BY_HAND if program.name == command]:
            build(layout, _say, wanted)
        os.execve(layout.program(command), [command, *rest], clients.environment(layout))
    return 0


def main(argv: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    # Arguments after a tool's name belong to the tool; argparse would parse a leading -n itself.
    own = 1 if argv and argv[0] in _TOOLS else len(argv)
    arguments = _parser().parse_args(argv[:own])
    try:
        return _run(arguments, argv[own:])
    except ClusterError as error:
        _say(f"{'cannot run here: ' if isinstance(error, CannotRunError) else ''}{error}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `cluster status | head` is not an error
    # SIGTERM's default would leave compilers and half a cluster running.
    signal.signal(signal.SIGTERM, teardown.raise_interrupt)
    sys.exit(main(sys.argv[1:]))
