"""Check a commit message: `.ci/commit_message.py FILE`, as git's hook `commit-msg` calls it.

The first line is `area: what`, imperative, at most 60 characters, without a full stop. A blank line follows, and a body
that says why. Messages that git writes (merges, reverts, fixups) pass.
"""

import re
import sys
from pathlib import Path

LONGEST = 60
SUBJECT = re.compile(r"(?P<area>[a-z0-9][a-z0-9_./-]*): (?P<verb>[a-z][\w-]*)(?P<rest> .+)?")
BY_GIT = re.compile(r"Merge |Revert \"|(?:fixup|squash|amend)! ")
# No rule of spelling separates these imperatives from the forms that are refused.
IMPERATIVES = {
    *("bring", "ping", "ring", "string", "wring"),
    *("bleed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed", "succeed", "weed"),
    *("alias", "bias", "canvas", "focus"),
}
INFLECTED = re.compile(r"\w+(?:ing|ed|[^s]s)")


def problems(message: str) -> list[str]:
    """Return what is wrong with a message, one line each; none for a good one."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    subject, *rest = "\n".join(lines).strip().split("\n")
    if BY_GIT.match(subject):
        return []
    found = []
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters; use at most {LONGEST} and put the rest into the body")
    parts = SUBJECT.fullmatch(subject)
    if parts is None:
        found.append("the subject is not `area: what`, in lower case, such as `report: clip tick labels`")
    elif INFLECTED.fullmatch(parts["verb"]) and parts["verb"] not in IMPERATIVES:
        found.append(f"{parts['verb']!r} is not imperative; write what the commit does: add, fix, remove, rename")
    if subject.endswith("."):
        found.append("the subject ends in a full stop; remove it")
    if rest and rest[0]:
        found.append("the second line is not blank; separate subject and body")
    if not any(rest):
        found.append("there is no body; say why the change is made")
    return found


def main() -> int:
    """Print what is wrong; 1 where there is anything."""
    found = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for problem in found:
        print(f"commit message: {problem}", file=sys.stderr)
    if found:
        print("CONTRIBUTING.md, section Commits, has the rules", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
