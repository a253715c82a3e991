"""The command line called in this process, and the recorded study that comes with the checkout."""

import io

from meshtrial import cli, paths

(SAMPLE,) = (path.parent for path in (paths.CHECKOUT / "data" / "sample").glob("*/*/plan.json"))


def meshtrial(*argv: object) -> tuple[int, str, str]:
    """A command's exit code, and what it printed and complained of."""
    out, err = io.StringIO(), io.StringIO()
    return cli.main([str(word) for word in argv], out, err), out.getvalue(), err.getvalue()
