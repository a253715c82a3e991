"""``meshtrial run STUDY``: the notebook through papermill, its HTML, and the index over all runs."""

import argparse
import datetime
import json
import logging
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TextIO

import msgspec

from meshtrial import paths
from meshtrial.commands import gating, limits
from meshtrial.design.parameters import with_design
from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.studies import STUDIES, study_module
from meshtrial.errors import Exit, GateError, MeshtrialError, UsageError
from meshtrial.inference import read_study
from meshtrial.inference.ending import Ending, ending
from meshtrial.inference.gate import declared_by
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.store import StudyStore, read_json
from meshtrial.run.progress import Lines, shown
from meshtrial.run.trial import HANDOFF, LOOK, Trial, kept, resume_command
from meshtrial.signals import end_tasks, interruptible
from meshtrial.temporary import PrivateFolder
from meshtrial.testbed.local.others import LoadSnapshot
from meshtrial.typed import shortened

# How long an interrupted kernel may take to remove what it deployed, before it is killed: processes die with it anyway,
# a namespace on a cluster needs tens of seconds. It ends as soon as it is done. After half of it jupyter_client sends
# SIGTERM, which ends the removal.
GRACE_S = {"local": 5.0, "kubernetes": 480.0}
# Bytes of the name of a socket: unix(7) ends at 107, macOS at 103.
LONGEST_SOCKET = 103


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.add_argument("-h", "--help", action=_Help, help="with a STUDY: its parameters, and what they cannot answer")
    command.add_argument("study", choices=sorted(STUDIES))
    command.add_argument("-p", dest="pairs", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    command.add_argument("-f", dest="file", type=Path, metavar="FILE.yaml", help="a design: parameters in a YAML file")
    command.add_argument("--resume", action="store_true", help="resume this plan if it was started, otherwise start it")
    command.add_argument(
        "--allow-excluded", action="store_true", help="end with 0 where verdicts were given, whatever was excluded"
    )
    gating.add(command)


class _Help(argparse.Action):
    """How the command is used; behind a study's name it is the command's own, which knows what else is given."""

    def __init__(self, **more: Any) -> None:
        super().__init__(nargs=0, default=False, **more)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        if getattr(namespace, "study", None) is None:
            print(parser.format_help().rstrip())
            parser.exit()
        namespace.help = True


def help_text(study: str, given: Mapping[str, Any]) -> str:
    """A study's parameters, how long a plan of those that are given takes, and what it cannot answer."""
    if given.get("study_dir") or not given.get("run_missing", True):
        return parameters_text(study)
    trial = Trial(study, given)
    lines = [trial.announced(), *(limit.sentence for limit in trial.limits())]
    return "\n".join([parameters_text(study), "", f"With {'these' if given else 'default'} parameters", *lines])


def parameters_text(study: str) -> str:
    """A study's parameters in groups, those of its notebook's cell first: default, and what each is."""
    taken = study_module(study).SETTINGS
    width = max(map(len, taken.settings))
    lines = [f"meshtrial run {study} -p NAME=VALUE ..."]
    for heading, settings in taken.groups():
        lines += ["", heading]
        lines += [f"  {one.name:<{width}}  {json.dumps(one.text(one.default)):<12}  {one.meaning}" for one in settings]
    return "\n".join(lines)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    if arguments.help:
        print(help_text(arguments.study, read_given(arguments.study, arguments.file, arguments.pairs)), file=out)
        return Exit.DONE
    limits.require()
    gate = gating.read(arguments)
    given = read_given(arguments.study, arguments.file, arguments.pairs)
    if arguments.resume:
        given |= begun(arguments.study, given)
    return run_notebook(arguments.study, given, out, gate, allow_excluded=arguments.allow_excluded)


def read_given(study: str, file: Path | None, pairs: list[str]) -> dict[str, Any]:
    """Parameters from a YAML file and from ``-p``; the latter win. Refuses bad ones before anything starts."""
    given: dict[str, Any] = {} if file is None else {"design": str(file)}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            said = pair if len(pair) <= 60 and pair.isprintable() else shortened(pair)
            raise UsageError(f"-p {said}: is not NAME=VALUE")
        given[name.strip()] = _value(text)
    given = with_design(given)
    module = study_module(study)
    settings = module.SETTINGS.read(given)
    if not settings.study_dir:
        module.build(settings)
    return given


def begun(study: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """``study_dir`` of the newest study under the studies' root that has the plan of these parameters; empty for none.

    The same parameters give the same plan, but for the seed where it was drawn; so whoever is started again by a
    machine (a Job, a timer) need not know the folder.
    """
    module = study_module(study)
    settings = module.SETTINGS.read(given)
    if settings.study_dir:
        return {}
    part = Part.parse(settings.part) if settings.part else None

    def plan_of(seed: int) -> Plan:
        return make_plan(module.build(msgspec.structs.replace(settings, seed=settings.seed or seed)))

    store = StudyStore.begun(paths.studies_root(), study, plan_of, part)
    return {} if store is None else {"study_dir": str(store.path)}


def _backend(given: Mapping[str, Any]) -> str:
    """Where the study runs; of one that goes on its plan says so."""
    folder = given.get("study_dir")
    if not folder:
        return str(given.get("backend", "local"))
    return StudyStore.open(Path(str(folder)).expanduser().resolve()).plan.study.backend


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def run_notebook(
    study: str,
    given: Mapping[str, Any],
    out: TextIO,
    gate: gating.Gate,
    reports: Path | None = None,
    *,
    allow_excluded: bool = False,
) -> int:
    """Run a study's notebook, write HTML, its entry and the index, print what it says and where it lies; then the gate.

    The executed notebook is a new file, always, in the folder of all reports where no other is given. What was excluded
    is said in the last line, with the exit code that comes of it.
    """
    announced = Trial(study, given).announced()
    if announced:
        print(announced, file=out)
        print(
            f"meanwhile: `meshtrial status`, and {paths.display_path(paths.studies_root() / study)}",
            file=out,
            flush=True,
        )
    folder, store = reports or paths.reports_root(), None
    try:
        notebook = new_notebook(study, folder)
        try:
            error, store = _execute(study, notebook, given, out)
        finally:
            if notebook.exists() and not notebook.stat().st_size:
                notebook.unlink()  # it did not come to its first cell
        if isinstance(error, OSError):
            raise error
        if error is not None and notebook.exists():
            _mark_unfinished(notebook, error, store, study, given)
        data = _publish(study, notebook, store, error, out)
    except OSError as unwritten:
        why = f"{paths.display_path(folder)}: the report cannot be written ({unwritten.strerror or unwritten})"
        left = "nothing was recorded" if store is None else f"{kept(store)}; `{resume_command(store)}` goes on"
        raise MeshtrialError(f"{why}; {left}") from None
    # matplotlib takes a second to load, which other commands need not wait for.
    from meshtrial.report import frames

    ended = ending(data, measured=bool(given.get("run_missing", True)))
    code = Exit.DONE if ended.has_verdict and (allow_excluded or not ended.excluded) else Exit.EXCLUDED
    try:
        gate.judge(frames.contrasts(data), declared_by(data.plan), data.plan.study.alpha, study, out)
    except GateError:
        _say(ended, Exit.DONE, out)  # its own line says why the command fails
        raise
    _say(ended, code, out)
    return code


def _say(ended: Ending, code: Exit, out: TextIO) -> None:
    """In one line what was excluded, whether there is no verdict, and the exit code that says so."""
    lacking = "" if ended.has_verdict else "no verdict was given on a primary response"
    line = "; ".join(filter(None, (lacking, ended.excluded)))
    if line:
        print(f"{line} (exit code {code})" if code else line, file=out, flush=True)


def new_notebook(study: str, folder: Path) -> Path:
    """A file for the executed notebook that was not there before, also where several begin within a second."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / (f"{study}-{stamp}.ipynb" if number == 1 else f"{study}-{stamp}-{number}.ipynb")
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return path


def _execute(
    study: str, notebook: Path, given: Mapping[str, Any], out: TextIO
) -> tuple[BaseException | None, StudyStore | None]:
    """Run the notebook; what ended it early, and the study's records where it came so far."""
    source = paths.NOTEBOOKS / f"{study}.ipynb"
    with closing(PrivateFolder("meshtrial-run-")) as private, interruptible(end_tasks):
        handoff = private.path / "handoff.json"
        with suppress(OSError):  # no /proc, and so no local study
            LoadSnapshot.now().write(private.path / LOOK)
        # What the kernel puts into its temporary folder goes with ours, even when the kernel is killed outright.
        changed = {HANDOFF: str(handoff), "TMPDIR": str(private.path)}
        with shown(out) as tell, closing(Lines(tell)) as lines:
            error = _papermill(source, notebook, given, changed, kernel_connection(private.path), lines)
        return error, StudyStore.open(Path(read_json(handoff)["study_dir"])) if handoff.exists() else None


def kernel_connection(folder: Path) -> Mapping[str, str]:
    """How the kernel is reached: by sockets in a folder of ours, where a key for them lies too.

    jupyter_client asks for free ports of the machine, lets them go, and the kernel binds them a second later: whatever
    took one meanwhile, such as the kernel of a second session, ends this one (jupyter/jupyter_client#487).
    """
    connection = folder / "kernel.json"
    longest = f"{connection.with_suffix('')}-ipc-5"
    return {
        "connection_file": str(connection),
        "transport": "ipc" if len(os.fsencode(longest)) <= LONGEST_SOCKET else "tcp",
    }


def _papermill(
    source: Path,
    notebook: Path,
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    reached: Mapping[str, str],
    out: Lines,
) -> BaseException | None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    # papermill warns of every parameter that the notebook's cell lacks; all of them were checked before.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    # No typed arguments and no return: papermill's engine starts a kernel with no environment but this process's own
    # (papermill.engines.NBClientEngine: its execute() takes nothing), and a kernel that was killed answers nothing but
    # has left its file.
    kept = dict(os.environ)
    os.environ.update(environment)
    try:
        papermill.execute_notebook(
            # papermill takes braces in a path for the names of parameters.
            *(str(path).replace("{", "{{").replace("}", "}}") for path in (source, notebook)),
            parameters=dict(given),
            kernel_name="python3",
            progress_bar=False,
            log_output=True,
            stdout_file=out,
            # No other folder than the user's: a relative path in a parameter is meant from there.
            # The kernel's own log goes to our stderr; what a user must know is in the notebook. A traceback of it goes
            # into messages, logs and files, so it has no colours.
            extra_arguments=["--log-level=CRITICAL", "--InteractiveShell.colors=nocolor"],
            config=Config({"KernelManager": {"shutdown_wait_time": GRACE_S[_backend(given)], **reached}}),
        )
    except (papermill.PapermillExecutionError, KeyboardInterrupt, OSError) as error:
        return error
    except DeadKernelError:
        return MeshtrialError("the notebook's kernel died: it was killed, or found no memory")
    except RuntimeError as error:  # jupyter_client's, before the kernel's first reply
        return MeshtrialError(f"the notebook's kernel did not come up: {error}")
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return None


def _publish(
    study: str, notebook: Path, store: StudyStore | None, error: BaseException | None, out: TextIO
) -> StudyData:
    # matplotlib, seaborn and nbconvert take a second to load, which other commands need not wait for.
    from meshtrial.report import catalogue, html, tables

    page = notebook.with_suffix(".html")
    data = read_study(store) if store is not None and error is None else None
    status = "whole" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    if notebook.exists():
        html.notebook_to_html(notebook, page, index="index.html")
        catalogue.write_entry(
            page,
            study=study,
            status=status,
            notebook=notebook,
            data=data,
            plan=None if store is None else store.plan,
            data_dir=None if store is None else store.path,
            message="" if error is None else _failure_reason(error),
        )
    index = catalogue.write_index(notebook.parent, paths.studies_root())
    if error is not None:
        if store is not None:
            print(f"{kept(store)}; to go on:\n  {resume_command(store)}", file=out, flush=True)
        if isinstance(error, KeyboardInterrupt | MeshtrialError):
            raise error
        raise _from_notebook(error, notebook)
    if data is None:
        raise MeshtrialError(f"{paths.display_path(notebook)}: ended without recording a study; read its last cell")
    print(f"\n{tables.headline(data)}\n", file=out)
    print(f"records  {paths.display_path(data.path)}", file=out)
    print(f"report   {paths.display_path(page)}", file=out)
    print(f"index    {paths.display_path(index)}", file=out)
    out.flush()
    return data


def _failure_reason(error: BaseException) -> str:
    """In a few words, as a reader of the notebook needs it."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(getattr(error, "evalue", "") or error)


def _mark_unfinished(
    notebook: Path, error: BaseException, store: StudyStore | None, study: str, given: Mapping[str, Any]
) -> None:
    from meshtrial.report.html import add_unfinished_banner

    if store is None:
        parts = [part for name, value in given.items() for part in ("-p", f"{name}={value}")]
        command = shlex.join(["meshtrial", "run", study, *parts])
        add_unfinished_banner(notebook, _failure_reason(error), "Nothing was recorded", command)
    else:
        add_unfinished_banner(notebook, _failure_reason(error), kept(store), resume_command(store))


def _from_notebook(error: Any, notebook: Path) -> MeshtrialError:
    """The one line that a failed notebook comes down to, with the exit code of the error inside it."""
    name, value = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    kinds: dict[str, type[MeshtrialError]] = {MeshtrialError.__name__: MeshtrialError}
    kinds |= {kind.__name__: kind for kind in MeshtrialError.__subclasses__()}
    if name in kinds:
        return kinds[name](value)
    lines = getattr(error, "traceback", [])
    print("\n".join(lines[-1:]), file=sys.stderr)
    return MeshtrialError(f"{name}: {value} (the whole notebook: {paths.display_path(notebook)})")
