"""Call the command line in this process, and name the recorded study of the checkout."""

import io

from meshtrial import cli, paths

(SAMPLE,) = (path.parent for path in (paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json"))


def meshtrial(*argv: object) -> tuple[int, str, str]:
    """A command's exit code and its output on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    return cli.main([str(word) for word in argv], out, err), out.getvalue(), err.getvalue()
