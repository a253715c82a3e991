"""``meshtrial run STUDY``: execute the notebook with papermill, then write its HTML and the index of reports.

A design, a file of parameters in ``notebooks/designs``, is named like a study: ``telemetry`` or
``feature_impact-telemetry`` is ``feature_impact`` with this file.
"""

import argparse
import datetime
import json
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import msgspec

from meshtrial import packages, paths
from meshtrial.commands import gating, limits
from meshtrial.design.parameters import nearest, with_design
from meshtrial.design.plan import Plan, make_plan
from meshtrial.design.studies import STUDIES, study_module
from meshtrial.errors import Exit, GateError, MeshtrialError, MissingToolError, UsageError
from meshtrial.inference import read_study
from meshtrial.inference.gate import declared_by, ending
from meshtrial.records.dataset import StudyData
from meshtrial.records.parts import Part
from meshtrial.records.store import StudyStore, read_json
from meshtrial.report import frames
from meshtrial.run.progress import LineWriter, progress_to
from meshtrial.run.sessions import next_session
from meshtrial.run.trial import MACHINE_USE_FILE, STUDY_DIR_FILE_ENV, Trial, complete, recorded_so_far, resume_command
from meshtrial.signals import end_tasks, interruptible
from meshtrial.temporary import PrivateFolder
from meshtrial.testbed.local.proc import LoadSnapshot
from meshtrial.typed import shortened

# How long an interrupted kernel may take to remove its deployments before it is killed. Local processes die with the
# kernel; removing a namespace from a cluster takes tens of seconds. After half of this time jupyter_client sends
# SIGTERM, which ends the removal.
GRACE_S = {"local": 5.0, "kubernetes": 480.0}
# Largest length of a socket path in bytes: 107 on Linux (unix(7)), 103 on macOS.
LONGEST_SOCKET = 103
SHORT_PARENT = Path("/tmp")
_PRIVATE = "meshtrial-run-"
_FROM_PROFILE = re.compile(r"; (0|empty)\b[^;(]*\bprofile\b[^;(]*")


def add(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    option = command.add_argument
    option("-h", "--help", action=_Help, help="show this help; with STUDY, its parameters and the limits of its plan")
    option("study", metavar="STUDY", help="study to run, or a design of notebooks/designs")
    listed = textwrap.fill(", ".join(sorted(STUDIES)), 79, initial_indent="  ", subsequent_indent="  ")
    command.epilog = f"studies:\n{listed}\n\n{command.epilog}"
    option("-p", dest="pairs", action="append", default=[], metavar="NAME=VALUE", help="set a parameter of the study")
    option("-f", dest="file", type=Path, metavar="FILE.yaml", help="read parameters from a YAML file")
    option("--resume", action="store_true", help="resume this plan if it was started before, else start it")
    option("--next-session", action="store_true", help="run only the session that is due now, then exit (for cron)")
    option("--allow-excluded", action="store_true", help="exit with 0 if verdicts were given but runs were excluded")
    gating.add(command)


def designs() -> dict[str, Path]:
    """Return the designs' files by name, each also by its name without the study's."""
    files = sorted((paths.NOTEBOOKS / "designs").glob("*.yaml"))
    return {name: file for file in files for name in (file.stem, file.stem.partition("-")[2])}


def chosen(name: str, file: Path | None) -> tuple[str, Path | None]:
    """Return the study and the file of parameters that a study's or design's name and an optional file select."""
    if name in STUDIES:
        return name, file
    known = designs()
    if name not in known:
        names = [*sorted(STUDIES), *dict.fromkeys(path.stem for path in known.values())]
        raise UsageError(f"study {shortened(name)} is not known: {nearest(name, names)}")
    if file is not None:
        raise UsageError(f"{name} is a design; give its study and -f {file}, or the design without -f")
    return known[name].stem.partition("-")[0], known[name]


class _Help(argparse.Action):
    """Print the help of the command; after a study's name, leave it to :func:`run`, which then knows all parameters."""

    def __init__(self, **more: Any) -> None:
        super().__init__(nargs=0, default=False, **more)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: object) -> None:
        if getattr(namespace, "study", None) is None:
            print(parser.format_help().rstrip())
            parser.exit()
        namespace.help = True


def help_text(study: str, given: Mapping[str, Any]) -> str:
    """Describe a study's parameters, how long a plan of the given ones takes, and what it cannot answer."""
    if given.get("study_dir") or not given.get("measure", True):
        return parameters_text(study)
    trial = Trial(study, given)
    with suppress(MissingToolError):  # the packages that studies need are not needed for help
        trial.require_possible()
    lines = [trial.announced(), *(limit.sentence for limit in trial.limits())]
    return "\n".join([parameters_text(study), "", f"With {'these' if given else 'default'} parameters", *lines])


def parameters_text(study: str) -> str:
    """List a study's parameters in groups, those of its notebook's cell first, each with its default and meaning."""
    taken = study_module(study).SETTINGS
    width, columns = max(map(len, taken.settings)), max(60, shutil.get_terminal_size().columns)
    lines = [
        f"meshtrial run {study} -p NAME=VALUE ...",
        "",
        "0 or empty: set by the profile, or the study's default, unless the parameter's line",
        "says otherwise.",
    ]
    for heading, settings in taken.groups():
        lines += ["", heading]
        for setting in settings:
            head = f"  {setting.name:<{width}}  {json.dumps(setting.text(setting.default)):<9}  "
            meaning = _FROM_PROFILE.sub("", setting.meaning)  # the heading explains it for all
            lines.append(textwrap.fill(meaning, columns, initial_indent=head, subsequent_indent=len(head) * " "))
    return "\n".join(lines)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Execute the command."""
    study, file = chosen(arguments.study, arguments.file)
    given = read_given(study, file, arguments.pairs)
    if arguments.help:
        print(help_text(study, given), file=out)
        return Exit.DONE
    limits.require()
    gate = gating.read(arguments)
    if arguments.resume or arguments.next_session:
        given |= begun(study, given)
    if arguments.next_session:
        given["next_session"] = True
        if (reason := nothing_due(study, given)) is not None:
            print(reason, file=out)
            return Exit.DONE
    return run_notebook(study, given, out, gate, allow_excluded=arguments.allow_excluded)


def read_given(study: str, file: Path | None, pairs: list[str]) -> dict[str, Any]:
    """Return the parameters of a YAML file and of ``-p``, which override the file; UsageError for invalid ones."""
    given: dict[str, Any] = {} if file is None else {"design": str(file)}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            shown = pair if len(pair) <= 60 and pair.isprintable() else shortened(pair)
            raise UsageError(f"-p {shown}: must be NAME=VALUE")
        given[name.strip()] = _value(text)
    given = with_design(given)
    module = study_module(study)
    settings = module.SETTINGS.read(given)
    if not settings.study_dir:
        module.build(settings)
    return given


def begun(study: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``study_dir`` of the newest recorded study with the plan of these parameters; empty if there is none.

    The same parameters give the same plan, except for a seed that was drawn. A Job or timer that starts the command
    again therefore need not know the folder.
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


def nothing_due(study: str, given: Mapping[str, Any]) -> str | None:
    """Return why no session of a study that has begun is due now; None if one is.

    UsageError for parameters that contradict its plan. Damaged runs are due: the session repeats them.
    """
    folder = given.get("study_dir")
    if not folder:
        return None
    trial = Trial(study, {**given, "measure": False})
    store = StudyStore.open(Path(str(folder)).expanduser().resolve())
    damaged: dict[Path, str] = {}
    records = store.records(damaged)
    if damaged:
        return None
    session = None if complete(store, records) else next_session(store)
    if session is None:  # system calls are counted after the last session
        return f"{paths.display_path(store.path)}: all sessions are recorded" if trial.is_whole(store) else None
    now_unix_s = time.time()
    return session.announcement(now_unix_s) if session.remaining_s(now_unix_s) else None


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
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
    """Run a study's notebook, write its page and the index, print the result, judge the gate; return the exit code.

    The executed notebook is always a new file, in ``reports`` or the folder of all reports. The last line printed says
    what was excluded, with the exit code that follows from it.
    """
    packages.require("papermill")
    trial = Trial(study, given)
    trial.require_possible()
    if announced := trial.announced():
        print(announced, file=out)
        print(f"records: {paths.display_path(paths.studies_root() / study)}; `meshtrial status`", file=out, flush=True)
    folder, store = reports or paths.reports_root(), None
    try:
        notebook = new_notebook(study, folder)
        try:
            error, store = _execute(study, notebook, given, GRACE_S[trial.plan.study.backend], out)
        finally:
            if notebook.exists() and not notebook.stat().st_size:
                notebook.unlink()  # it ended before its first cell
        if isinstance(error, OSError):
            raise error
        data = _publish(study, notebook, given, store, error, out)
    except OSError as unwritten:
        reason = f"{paths.display_path(folder)}: the report cannot be written ({unwritten.strerror or unwritten})"
        recorded = f"{recorded_so_far(store)}; resume: {resume_command(store)}" if store else "nothing was recorded"
        raise MeshtrialError(f"{reason}; {recorded}") from None
    if given.get("next_session") and store is not None and (session := next_session(store)) is not None:
        print(session.announcement(time.time()), file=out, flush=True)
        return Exit.DONE  # the gate and exclusions are judged after the last session
    ended = ending(data, measured=bool(given.get("measure", True)))
    code = Exit.DONE if ended.has_verdict and (allow_excluded or not ended.excluded) else Exit.EXCLUDED
    fired: GateError | None = None
    try:
        gate.judge(frames.contrasts(data), declared_by(data.plan), data.plan.study.alpha, study, out)
    except GateError as gate_error:
        fired, code = gate_error, Exit.DONE  # the exit code is the gate's
    no_verdict = "" if ended.has_verdict else "no verdict was given on a primary response"
    if line := "; ".join(filter(None, (no_verdict, ended.excluded))):
        print(f"{line} (exit code {code})" if code else line, file=out, flush=True)
    if fired is not None:
        raise fired
    return code


def new_notebook(study: str, folder: Path) -> Path:
    """Create a new file for the executed notebook, also if several commands start within one second."""
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
    study: str, notebook: Path, given: Mapping[str, Any], grace_s: float, out: TextIO
) -> tuple[BaseException | None, StudyStore | None]:
    """Run the notebook. Return the error that ended it early, and the study's records if it created them."""
    source = paths.NOTEBOOKS / f"{study}.ipynb"
    with (
        closing(PrivateFolder(_PRIVATE)) as private,
        interruptible(end_tasks),
        kernel_connection(private) as connection,
    ):
        study_dir_file = private.path / "handoff.json"
        with suppress(OSError):  # without /proc there are no local studies
            LoadSnapshot.now().write(private.path / MACHINE_USE_FILE)
        # The kernel's temporary files are removed with our folder, even if the kernel is killed.
        changed = {STUDY_DIR_FILE_ENV: str(study_dir_file), "TMPDIR": str(private.path)}
        with progress_to(out) as progress, closing(LineWriter(progress)) as lines:
            error = _papermill(source, notebook, given, changed, {"shutdown_wait_time": grace_s, **connection}, lines)
        if not study_dir_file.exists():
            return error, None
        return error, StudyStore.open(Path(read_json(study_dir_file)["study_dir"]))


@contextmanager
def kernel_connection(private: PrivateFolder) -> Iterator[dict[str, str]]:
    """Give kernel manager options that place its key and its sockets in a private folder, removed afterwards.

    By default jupyter_client picks free TCP ports, releases them, and the kernel binds them a second later. If another
    process takes one in between, the kernel does not start (jupyter/jupyter_client#487). Where the path of a socket
    would be too long, both are in a folder below /tmp.
    """
    with ExitStack() as stack:
        folder, transport = private.path, "ipc"
        if len(os.fsencode(folder / "kernel-ipc-5")) > LONGEST_SOCKET:
            try:
                folder = stack.enter_context(closing(PrivateFolder(_PRIVATE, SHORT_PARENT))).path
            except OSError:  # nothing can be written there
                transport = "tcp"
        yield {"connection_file": str(folder / "kernel.json"), "transport": transport}


def _papermill(
    source: Path,
    notebook: Path,
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    kernel: Mapping[str, Any],
    out: LineWriter,
) -> BaseException | None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from traitlets.config import Config

    # papermill warns of every parameter that the notebook's cell lacks; all of them were checked before.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    # papermill's engine gives a kernel no environment but this process's own (papermill.engines.NBClientEngine), so
    # the paths are passed in environment variables. A file, unlike a message, survives a kernel that is killed.
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        papermill.execute_notebook(
            # papermill reads braces in a path as names of parameters.
            *(str(path).replace("{", "{{").replace("}", "}}") for path in (source, notebook)),
            parameters=dict(given),
            kernel_name="python3",
            progress_bar=False,
            log_output=True,
            stdout_file=out,
            # No working folder is set: a relative path in a parameter is relative to the user's.
            # Without colours a traceback can go into messages, logs and files.
            extra_arguments=["--log-level=CRITICAL", "--InteractiveShell.colors=nocolor"],
            config=Config({"KernelManager": dict(kernel)}),
        )
    except (papermill.PapermillExecutionError, KeyboardInterrupt, OSError) as error:
        return error
    except DeadKernelError:
        return MeshtrialError("the notebook's kernel died: it was killed or ran out of memory")
    except RuntimeError as error:  # from jupyter_client, before the kernel's first reply
        return MeshtrialError(f"the notebook's kernel did not start: {error}")
    finally:
        os.environ.clear()
        os.environ.update(before)
    return None


def _publish(
    study: str,
    notebook: Path,
    given: Mapping[str, Any],
    store: StudyStore | None,
    error: BaseException | None,
    out: TextIO,
) -> StudyData:
    """Write page, entry and index and print where they are; raise the error that ended the notebook, if any."""
    # Importing matplotlib, seaborn and nbconvert takes a second.
    from meshtrial.report import catalogue, exporter, tables

    page = notebook.with_suffix(".html")
    data = read_study(store) if store is not None and error is None else None
    is_interrupted = isinstance(error, KeyboardInterrupt)
    status = "whole" if error is None else "interrupted" if is_interrupted else "failed"
    reason = "" if error is None else status if is_interrupted else str(getattr(error, "evalue", "") or error)
    if error is not None:
        pairs = [word for name, value in given.items() for word in ("-p", f"{name}={value}")]
        restart = shlex.join(["meshtrial", "run", study, *pairs])
        recorded = "Nothing was recorded" if store is None else recorded_so_far(store)
        command = restart if store is None else resume_command(store)
        if notebook.exists():
            exporter.add_unfinished_banner(notebook, reason, recorded, command)
    if notebook.exists():
        exporter.notebook_to_html(notebook, page, index="index.html")
        catalogue.write_entry(
            page,
            study=study,
            status=status,
            notebook=notebook,
            data=data,
            plan=None if store is None else store.plan,
            data_dir=None if store is None else store.path,
            message=reason,
        )
    index = catalogue.write_index(notebook.parent, paths.studies_root())
    if error is not None:
        if store is not None:
            print(f"{recorded}; resume with:\n  {command}", file=out, flush=True)
        raise error if isinstance(error, KeyboardInterrupt | MeshtrialError) else _from_notebook(error, notebook)
    if data is None:
        raise MeshtrialError(f"{paths.display_path(notebook)}: ended without recording a study; read its last cell")
    print(f"\n{tables.headline(data)}\n", file=out)
    print(f"records  {paths.display_path(data.path)}", file=out)
    print(f"report   {paths.display_path(page)}", file=out)
    print(f"index    {paths.display_path(index)}", file=out, flush=True)
    return data


def _from_notebook(error: Any, notebook: Path) -> MeshtrialError:
    """Return the error inside a failed notebook as one line, with its exit code."""
    name, value = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    kinds: dict[str, type[MeshtrialError]] = {MeshtrialError.__name__: MeshtrialError}
    kinds |= {kind.__name__: kind for kind in MeshtrialError.__subclasses__()}
    if name in kinds:
        return kinds[name](value)
    print("\n".join(getattr(error, "traceback", [])[-1:]), file=sys.stderr)
    return MeshtrialError(f"{name}: {value} (see the notebook {paths.display_path(notebook)})")
