"""The commands, with their options and exit codes."""

import argparse

from pages.tables import under


def command_line(text: str) -> str:
    """The exit codes, and every command with its options; those of a gate have a page of their own."""
    from meshtrial import cli
    from meshtrial.commands import gating
    from meshtrial.errors import Exit

    gate = argparse.ArgumentParser()
    gating.add(gate)
    codes = [(str(code.value), code.meaning.replace("--allow-excluded", "`--allow-excluded`")) for code in Exit]
    made = [under(text.partition("\n## meshtrial ")[0].rstrip() + "\n", "## Exit codes", codes)]
    for name, about in cli.COMMANDS.items():
        (verbs,) = [a for a in cli.parser(name)._actions if isinstance(a, argparse._SubParsersAction)]
        command = verbs.choices[name]
        made.append(f"\n## meshtrial {name}\n\n{about[0].upper()}{about[1:]}.\n")
        own = [action for action in command._actions if "--help" not in action.option_strings]
        rows = [_option(action) for action in own if not set(action.option_strings) & {*gate._option_string_actions}]
        if rows:
            made.append("\n" + "".join(f"- {option}: {meaning}\n" for option, meaning in rows))
        if len(rows) < len(own):
            made.append("\nIt also takes the [options of a gate](../how-to/ci-gate.md).\n")
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
    said = (action.help or "").replace("%%", "%")
    chosen = ", ".join(f"`{one}`" for one in action.choices) if action.choices else ""
    return f"`{name}`", "; ".join(filter(None, (said, chosen)))
