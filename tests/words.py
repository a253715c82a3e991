"""What a test asks of a message: its words, whole, in the one test that holds them; or the values in it, in any words.

Whoever mends a sentence mends it in one test. All others ask for the error's type and for what it must name.
"""

from __future__ import annotations

import re


def exactly(words: str) -> str:
    """A pattern for ``match`` that is the whole message."""
    return rf"\A{re.escape(words)}\Z"


def naming(*values: object) -> str:
    """A pattern for ``match``: a message that names each of these (an option, a file, a number, a bound)."""
    return r"\A" + "".join(rf"(?=[\s\S]*(?<!\w){re.escape(str(value))}(?!\w))" for value in values)
