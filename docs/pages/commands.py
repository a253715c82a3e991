"""The commands, with their options and exit codes."""

import argparse

from pages.tables import under


def exit_codes(text: str, heading: str = "## Exit codes") -> str:
    """How a command ends."""
    from meshtrial.errors import Exit

    return under(
        text,
        heading,
        ((str(code.value), code.meaning.replace("--allow-excluded", "`--allow-excluded`")) for code in Exit),
    )


def command_line(text: str) -> str:
    """Every command with its options."""
    from meshtrial import cli

    made = [exit_codes(text.partition("\n## ")[0].rstrip() + "\n", "# Command line")]
    for name, about in cli.COMMANDS.items():
        (verbs,) = [a for a in cli.parser(name)._actions if isinstance(a, argparse._SubParsersAction)]
        command = verbs.choices[name]
        made.append(f"\n## meshtrial {name}\n\n{about[0].upper()}{about[1:]}.\n")
        rows = [_option(action) for action in command._actions if "--help" not in action.option_strings]
        if rows:
            made.append("\n| option | meaning |\n|---|---|\n" + "".join(f"| {a} | {b} |\n" for a, b in rows))
    return "".join(made)


def _option(action: argparse.Action) -> tuple[str, str]:
    takes = action.nargs != 0
    name = action.option_strings[-1] if action.option_strings else ""
    value = action.metavar or ("" if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        name = value or action.dest.upper()
    elif takes and value:
        name = f"{name} {value}"
    said = (action.help or "").replace("%%", "%").replace("|", "\\|")
    chosen = ", ".join(f"`{one}`" for one in action.choices) if action.choices else ""
    return f"`{name}`", "; ".join(filter(None, (said, chosen)))
