"""Check plain English like code: phrases to avoid, and the length of a sentence.

It reads pages, Markdown cells of notebooks, templates of reports, and the texts of Python files. `docs/prose.yml` has
the phrases. `docs/prose-exceptions.yml` has the number of findings per file and phrase that are
still accepted. A higher number is an error; `--update` lowers the accepted numbers to what is found.

Vale and proselint read pages. Most sentences of this project are in Python strings and docstrings, which those tools do
not read, so this reader is part of the project. Its Markdown parser is a library.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
RULES = ROOT / "docs" / "prose.yml"
EXCEPTIONS = ROOT / "docs" / "prose-exceptions.yml"
TOO_LONG = "long sentence"
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_SENTENCE_END = re.compile(r"(?<![ .(][A-Za-z])[.!?][\"')*_]*\s+(?=[\"'`*_(\[]*[A-Z0-9])|\n\s*\n|\n(?=[-*] )")
# A message has words; a key, a path, a pattern or a format has not.
_FEWEST_WORDS = 4


@dataclass(frozen=True)
class Finding:
    """One phrase or one long sentence, at a line of a file."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Rules:
    """The most words of a sentence, and what to write instead of a phrase."""

    most_words: int
    phrases: Mapping[str, tuple[re.Pattern[str], str]]

    @classmethod
    def read(cls, path: Path = RULES) -> "Rules":
        """Read the file of rules; a pattern that is no regular expression is an error of `re`."""
        rules = yaml.safe_load(path.read_text())
        phrases = {
            each["phrase"]: (re.compile(rf"\b(?:{each['phrase']})\b", re.IGNORECASE), each["instead"])
            for each in rules["phrases"]
        }
        return cls(rules["most_words"], phrases)

    def findings(self, path: str, passages: Iterator[tuple[int, str]]) -> Iterator[Finding]:
        """What is to be rewritten in the passages of a file, each a line number and a text."""
        for line, passage in passages:
            for phrase, (pattern, instead) in self.phrases.items():
                for match in pattern.finditer(passage):
                    yield Finding(path, line, phrase, f"{match[0]!r}; write {instead}")
            for sentence in _SENTENCE_END.split(passage):
                words = sentence.split()
                if len(words) > self.most_words:
                    yield Finding(path, line, TOO_LONG, f"{len(words)} words: {' '.join(words[:8])} ...")


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file that a person reads, each with the line where it begins."""
    text = path.read_text()
    match path.suffix:
        case ".md":
            yield from _of_markdown(text)
        case ".ipynb":
            for cell in json.loads(text)["cells"]:
                if cell["cell_type"] == "markdown":
                    yield from _of_markdown("".join(cell["source"]))
        case ".j2":
            yield from _of_template(text)
        case ".py":
            yield from _comments(text)
            yield from _strings(ast.parse(text), docstrings_only="tests" in path.parts)


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    line = 1
    for token in _MARKDOWN.parse(text):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline":
            pieces = [child.content if child.type in ("text", "code_inline") else " " for child in token.children or ()]
            yield line, " ".join("".join(pieces).split())


def _of_template(text: str) -> Iterator[tuple[int, str]]:
    without_code = re.sub(r"\{#.*?#\}|<style.*?</style>", " ", text, flags=re.DOTALL)
    for number, line in enumerate(without_code.splitlines(), start=1):
        plain = re.sub(r"\{%.*?%\}|<[^>]*>", " ", re.sub(r"\{\{.*?\}\}", "x", line))
        if len(plain.split()) >= _FEWEST_WORDS:
            yield number, " ".join(plain.split())


def _strings(tree: ast.Module, docstrings_only: bool) -> Iterator[tuple[int, str]]:
    """Docstrings and messages; the strings of a test are its data."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            value = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            value = node.value
        else:
            continue
        is_code = re.search(r"^\s*[<{(^]|\(\?", value)
        if id(node) in docstrings or not (docstrings_only or is_code or len(value.split()) < _FEWEST_WORDS):
            yield node.lineno, _prose(value)


def _prose(docstring: str) -> str:
    """Return its paragraphs without examples; names of arguments and rules below headings end one."""
    lines = [line.strip() for line in docstring.splitlines() if not re.match(r"\s*(>>>|\.\.\.|\$ )", line)]
    return "\n".join("" if re.fullmatch(r"-{3,}|[\w, *]+ : .*", line) else line for line in lines)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    first, block, previous = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        alone = token.line.lstrip().startswith("#")
        comment = token.string.lstrip("#! ")
        if re.match(r"noqa|type:|pragma|ruff:|mypy:|/usr/bin", comment):
            continue
        if block and alone and line == previous + 1:
            block.append(comment)
        else:
            if block:
                yield first, " ".join(block)
            first, block = line, [comment]
        previous = line if alone else -1
    if block:
        yield first, " ".join(block)


def tracked(root: Path = ROOT) -> list[str]:
    """The files of the project that are read, by their paths in it."""
    patterns = ("*.md", "*.ipynb", "*.j2", "lib/*.py", "docs/*.py", "data/*.py", "tests/*.py")
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=root, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (root / name).exists()]


def check(names: Sequence[str], root: Path = ROOT, rules: Rules | None = None) -> list[Finding]:
    """All findings in the named files."""
    rules = rules or Rules.read()
    return [finding for name in names for finding in rules.findings(name, passages(root / name))]


def counted(findings: Sequence[Finding]) -> dict[str, dict[str, int]]:
    """How often each rule is broken, by file."""
    counts = Counter((finding.path, finding.rule) for finding in findings)
    by_file: dict[str, dict[str, int]] = {}
    for (path, rule), count in sorted(counts.items()):
        by_file.setdefault(path, {})[rule] = count
    return by_file


def excess(findings: Sequence[Finding], allowed: Mapping[str, Mapping[str, int]]) -> list[Finding]:
    """The findings of a file and rule that are more than its exceptions allow."""
    now = counted(findings)
    return [
        finding
        for finding in findings
        if now[finding.path][finding.rule] > allowed.get(finding.path, {}).get(finding.rule, 0)
    ]


def lowered(findings: Sequence[Finding], allowed: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The exceptions that are still needed: never more than there were."""
    now = counted(findings)
    fewer = {
        path: {rule: min(count, now[path][rule]) for rule, count in rules.items() if now.get(path, {}).get(rule)}
        for path, rules in allowed.items()
    }
    return {path: rules for path, rules in fewer.items() if rules}


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is to be rewritten; 1 if there is anything beyond the exceptions."""
    parser = argparse.ArgumentParser(
        description="check the English of documents, notebooks, templates and Python files"
    )
    parser.add_argument("files", nargs="*", help="files to check (default: all tracked ones)")
    parser.add_argument("--all", action="store_true", help="list the exceptions too")
    parser.add_argument("--update", action="store_true", help="lower the exceptions to what is still there")
    arguments = parser.parse_args(argv)
    names = [str(Path(name).resolve().relative_to(ROOT)) for name in arguments.files] or tracked()
    findings = check(names)
    allowed = yaml.safe_load(EXCEPTIONS.read_text()) or {} if EXCEPTIONS.exists() else {}
    if arguments.update:
        allowed = lowered(findings, allowed)
        EXCEPTIONS.write_text(yaml.safe_dump(allowed, sort_keys=True))
    listed = findings if arguments.all else excess(findings, allowed)
    print(*listed, sep="\n", end="\n" if listed else "")
    return 1 if listed else 0


if __name__ == "__main__":
    sys.exit(main())
