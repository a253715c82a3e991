"""Helm: the program, the charts of a session, and the values that they are installed with.

While Helm waits for its chart's jobs, their pods are watched: Helm reports "timed out" for those that fail and often
deletes them. Their logs are read as soon as they fail. The wait ends early if a pod failed for good.

Every run of a study installs from the same bytes, which are recorded by digest. A chart of a repository is pulled once,
into a folder of the session, and a chart that is given by path is used unchanged.

Values are merged in Helm's order: the mesh's files, fairness and generated keys, then the user's values for the mesh
and for its version. Helm ignores a value that its chart does not list. Here it is a problem: a misspelt limit makes a
comparison unfair, and nobody would notice.
"""

import contextlib
import difflib
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from meshtrial.envoy.keys import issuer_chain
from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import wait
from meshtrial.testbed.kubernetes.client import Cluster
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import Mesh, MeshOverride, Release
from meshtrial.testbed.kubernetes.meshversions import is_version
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.typed import parse_yaml

Watch = Callable[[], str]
# A registry or a kubelet may need a second attempt for a hook's pod; a problem that lasts this long is final.
_FINAL_S = 20.0


def program(options: KubernetesOptions) -> str:
    """Return the Helm program's path; MissingToolError when it is not installed."""
    path = shutil.which(options.helm)
    if path is None:
        raise MissingToolError(
            f"helm = {options.helm!r} is not on PATH; install Helm 3 or later (https://helm.sh/docs/intro/install/), "
            "or set helm=PATH"
        )
    return path


def version(options: KubernetesOptions) -> str:
    """Return the output of ``helm version``."""
    return run([program(options), "version", "--short"], 30.0).strip()


def install_release(
    cluster: Cluster,
    options: KubernetesOptions,
    mesh: Mesh,
    release: Release,
    chart: Path,
    values: Mapping[str, Any],
    watch: Watch | None = None,
) -> None:
    """Install or upgrade a release; the caller waits for its pods."""
    with tempfile.TemporaryDirectory(prefix="meshtrial-helm-") as folder:
        values_file = Path(folder) / "values.yaml"
        values_file.write_text(yaml.safe_dump(dict(values)))
        values_file.chmod(0o600)  # keys may be among them
        files = [part for name in release.values for part in ("-f", str(mesh.folder / name))]
        argv = [program(options), "upgrade", "--install", release.name, str(chart), "-n", release.namespace, *files]
        argv += ["-f", str(values_file), "--timeout", f"{options.mesh_timeout_s:g}s", *_cluster_flags(cluster)]
        run(argv, options.mesh_timeout_s + 30, watch=watch)


def uninstall_release(
    cluster: Cluster, options: KubernetesOptions, release: Release, watch: Watch | None = None
) -> None:
    """Uninstall a release; one that does not exist is no failure."""
    argv = [program(options), "uninstall", release.name, "-n", release.namespace, "--ignore-not-found", "--wait"]
    argv += ["--timeout", f"{options.mesh_timeout_s:g}s", *_cluster_flags(cluster)]
    run(argv, options.mesh_timeout_s + 30, watch=watch)


def run(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    every_s: float = 1.0,
) -> str:
    """Run a program in a session of its own, so that Ctrl-C reaches this process first, which then ends it.

    ``watch`` is called every ``every_s`` seconds; a text that it returns ends the wait as the reason. A program that
    fails is a TestbedError with its last lines.
    """
    name = Path(argv[0]).name
    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    began = time.monotonic()
    try:
        while True:
            remaining_s = timeout_s - (time.monotonic() - began)
            try:
                out, err = child.communicate(timeout=min(remaining_s, every_s) if watch else remaining_s)
                break
            except subprocess.TimeoutExpired:
                if remaining_s <= every_s or watch is None:
                    raise TestbedError(f"{name} {argv[1]}: no end within {timeout_s:g} s") from None
                final = watch()
                if final:
                    raise TestbedError(f"{name} {' '.join(argv[1:4])}: given up: {final}") from None
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    if child.returncode != 0:
        lines = [line for line in (err.strip() or out.strip()).splitlines() if line.strip()]
        message = " ".join(" ".join(lines[-3:]).split())
        raise TestbedError(f"{name} {' '.join(argv[1:4])}: exit {child.returncode}: {message[:600]}")
    return out


def _cluster_flags(cluster: Cluster) -> list[str]:
    flags = ["--kubeconfig", str(Path(cluster.kubeconfig).expanduser())] if cluster.kubeconfig else []
    return flags + (["--kube-context", cluster.context] if cluster.context else [])


class HookWatch:
    """The pods of Helm's hooks; called every second while Helm runs."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], settle: Sequence[str] = ()) -> None:
        self.problem = ""  # of the last hook that had one
        self.evidence: dict[str, str] = {}  # logs of those pods
        self._cluster, self._namespaces, self._settle = cluster, tuple(namespaces), tuple(settle)
        self._since: dict[str, float] = {}

    def __call__(self) -> str:
        """Read the pods; return why the wait for Helm ends, or an empty text."""
        now = time.monotonic()
        reason = ""
        with contextlib.suppress(TestbedError):
            pods = [p for name in self._namespaces for p in wait.pods_now(self._cluster, name)]
            for pod in filter(wait.is_hook, pods):
                final = wait.first_problem([pod], self._settle)
                problem = final or wait.pod_problem(pod)
                if not problem:
                    continue
                key = f"{pod['metadata']['uid']} {problem}"
                if key not in self._since:
                    self._since[key] = now
                    last_lines = wait.last_log_lines(self._cluster, pod)
                    self.problem = f"{problem}; {last_lines}" if last_lines else problem
                    self.evidence |= wait.pod_logs(self._cluster, pod)
                if final and now - self._since[key] > _FINAL_S:
                    reason = self.problem
        return reason


# --- charts -----------------------------------------------------------------------------------------------------------

_PULL_S = 120.0
_UNREACHABLE = re.compile(r"cannot be reached|dial tcp|no end within|x509|tls:|deadline|status code 5")
_ADVICE = "check the network and the version, or give the chart by meshes.<mesh>.charts.<release>.path"
# Istio's charts list their defaults below this key and take them one level higher.
_ISTIO_DEFAULTS = "_internal_defaults_do_not_set"


@dataclass(frozen=True)
class Chart:
    """A chart that can be installed."""

    name: str
    version: str
    app_version: str
    source: str  # the repository, or the path that the user gave
    sha256: str  # of the archive, or of the names and contents of a folder's files
    path: Path = field(compare=False)  # for Helm
    values: Json = field(compare=False, repr=False, default_factory=dict)  # all that the chart lists

    def record(self) -> dict[str, str]:
        """Return plain data for a record; a chart by path is recorded by its name only."""
        record = {k: v for k, v in asdict(self).items() if k not in ("path", "values")}
        return record | ({"source": self.path.name} if Path(self.source).expanduser() == self.path else {})


class Charts:
    """The charts of one session."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._read: dict[tuple[str, ...], Chart] = {}
        self._by_release: dict[tuple[str, str], Chart] = {}
        self._unreachable: dict[str, str] = {}

    def of(self, mesh: Mesh, release: Release) -> Chart:
        """Return the chart of a release, fetched at first use.

        A chart that cannot be fetched is a TestbedError; it is the same line for all charts of an unreachable
        repository.
        """
        where = f"mesh {mesh.name}, release {release.name}"
        source = (release.repository, release.chart, release.version or mesh.version, release.path)
        if source not in self._read:
            path = Path(release.path).expanduser()
            own = read_chart(path, release.path, where) if release.path else None
            self._read[source] = own or self._pulled(*source[:3], where)
        chart = self._by_release[mesh.name, release.name] = self._read[source]
        return chart

    def versions(self, mesh: Mesh) -> dict[str, str]:
        """Return what a mesh was installed from, for the record of a run."""
        fetched = [(release.name, self._by_release.get((mesh.name, release.name))) for release in mesh.releases]
        return {f"chart {name}": f"{chart.version} (sha256:{chart.sha256})" for name, chart in fetched if chart}

    def named(self, mesh: Mesh) -> Mesh:
        """Return a version with the names that its charts give its images: Linkerd's chart 2026.6.3 has edge-26.6.3."""
        declared = mesh.declared
        if declared is None or mesh.version not in declared.names:
            return mesh
        charts = [self._by_release.get((mesh.name, release.name)) for release in mesh.releases]
        more = [chart.app_version for chart in charts if chart and is_version(chart.version, mesh.version)]
        names = tuple(dict.fromkeys((*declared.names, *filter(None, more))))
        return replace(mesh, declared=replace(declared, names=names))

    def record(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return what was fetched, by mesh and release."""
        records: dict[str, dict[str, dict[str, str]]] = {}
        for (mesh, release), chart in self._by_release.items():
            records.setdefault(mesh, {})[release] = chart.record()
        return records

    def close(self) -> None:
        """Remove what was fetched."""
        self._read.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _pulled(self, repository: str, name: str, version: str, where: str) -> Chart:
        if repository in self._unreachable:
            raise TestbedError(self._unreachable[repository])
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="meshtrial-charts-")
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        if repository.startswith("oci://"):
            chart = [f"{repository.rstrip('/')}/{name}"]
        else:
            chart = [name, *(["--repo", repository] if repository else [])]
        chart += ["--version", version] if version else []
        try:
            run([program(self._options), "pull", *chart, "-d", str(folder)], _PULL_S)
        except MissingToolError:
            raise
        except TestbedError as error:
            reason = str(error).rpartition("Error: ")[2]
            if not _UNREACHABLE.search(reason):
                raise TestbedError(f"{where}: chart {name} {version} cannot be fetched: {reason}; {_ADVICE}") from None
            message = f"chart repository {repository} cannot be reached ({reason}); {_ADVICE}"
            self._unreachable[repository] = message
            raise TestbedError(message) from None
        archive = next(folder.glob("*.tgz"), None)
        if archive is None:
            raise TestbedError(f"{where}: 'helm pull {' '.join(chart)}' left no archive")
        return read_chart(archive, f"{repository} {name} {version}".strip(), where)


def read_chart(path: Path, source: str, where: str) -> Chart:
    """Return a chart by its folder or archive; TestbedError when it is none."""
    try:
        with _folder_of(path) as folder:
            about, values = _yaml(folder / "Chart.yaml"), _defaults(folder)
        name, version = str(about["name"]), str(about["version"])
    except (OSError, tarfile.TarError, UsageError, StopIteration, AttributeError, KeyError, TypeError) as error:
        readable = isinstance(error, OSError | tarfile.TarError | UsageError)
        missing = str(error) if readable else "it has no readable Chart.yaml"
        raise TestbedError(
            f"{where}: {source} is not a Helm chart ({' '.join(missing.split())[:200]}); give a chart's folder or .tgz"
        ) from None
    return Chart(name, version, str(about.get("appVersion", "")), source, _digest(path), path, values)


@contextlib.contextmanager
def _folder_of(chart: Path) -> Iterator[Path]:
    """Give a chart's folder; an archive is unpacked for the duration of the block."""
    if chart.is_dir():
        yield chart
        return
    with tempfile.TemporaryDirectory(prefix="meshtrial-chart-") as folder:
        with tarfile.open(chart) as archive:
            archive.extractall(folder, filter="data")
        yield next(Path(folder).iterdir())


def _yaml(file: Path) -> Json:
    """Return the content of a chart's file; nothing where the file does not exist."""
    content: Json = (parse_yaml(file.read_bytes(), file.name) if file.is_file() else None) or {}
    return content


def _defaults(chart: Path) -> Json:
    """Return the values that a chart lists: its own, those of inner charts below their names, and global ones."""
    defaults = _yaml(chart / "values.yaml")
    inner = defaults.pop(_ISTIO_DEFAULTS, None)
    if isinstance(inner, dict):
        defaults = merged(inner, defaults)
    dependencies = _yaml(chart / "Chart.yaml").get("dependencies") or []
    for path in sorted((chart / "charts").glob("*")):
        if path.suffix != ".tgz" and not (path / "Chart.yaml").is_file():
            continue
        with _folder_of(path) as below:
            name, known = str(_yaml(below / "Chart.yaml")["name"]), _defaults(below)
        # A chart may be included twice under different names.
        for alias in [str(d["alias"]) for d in dependencies if d.get("name") == name and d.get("alias")] or [name]:
            defaults[alias] = merged(known, defaults.get(alias) or {})
        defaults["global"] = merged(known.get("global") or {}, defaults.get("global") or {})
    for dependency in dependencies:
        for switch in str(dependency.get("condition") or "").split(","):
            if switch.strip() and tuple(switch.strip().split(".")) not in _paths(defaults, ()):
                put(defaults, switch.strip(), None)
        if dependency.get("tags"):
            defaults.setdefault("tags", {})
    return defaults


def _digest(path: Path) -> str:
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            total.update(
                f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(path).as_posix()}\n".encode()
            )
    return total.hexdigest()


# --- values -----------------------------------------------------------------------------------------------------------

# Values that charts pass to Kubernetes unchanged; charts list the usual keys, not all possible ones.
_HANDED_ON = ("annotations", "labels", "selector", "affinity", "securitycontext")
_RESOURCES = {"requests", "limits", "claims"}
_GENERATED = "generated."


class Values:
    """The values of one installation: the mesh's files, fairness, generated keys and the user's choices."""

    def __init__(self, options: KubernetesOptions, mesh: Mesh) -> None:
        self._mesh = mesh
        names = [name for _, name in options.pull_secrets]
        pull_secrets = {"image_pull_secrets": names, "image_pull_secret_references": [{"name": name} for name in names]}
        limits = {"proxy_cpu": options.proxy_cpu, "proxy_memory": options.proxy_memory}
        self._fair = MeshOverride("", limits | (pull_secrets if names else {}))
        self._generated = issuer_chain() if mesh.generated else {}

    def of(self, release: Release) -> Json:
        """Return the values that come after the release's own files."""
        return _together(self.layers(release)[len(release.values) :])

    def digest(self, release: Release) -> str:
        """Return the SHA-256 of the values, without the keys that every installation generates."""
        lasting = _together(layer for layer in self.layers(release) if not layer[0].startswith(_GENERATED))
        return hashlib.sha256(json.dumps(lasting, default=str).encode()).hexdigest()

    def layers(self, release: Release) -> list[tuple[str, Json]]:
        """Return all values with their origins, later ones winning."""
        mesh = self._mesh
        layers = [(name, _mapping(mesh.folder / name, f"mesh {mesh.name}: {name}")) for name in release.values]
        for name, path in mesh.generated.get(release.name, {}).items():
            layers.append((f"{_GENERATED}{name}", put({}, path, self._generated[name])))
        choices = (self._fair, *mesh.choices)
        # The last setting of a parameter counts, so an empty one cancels an earlier one.
        last = {name: choice for choice in choices for name in choice.parameters}
        for choice in choices:
            for name, value in choice.parameters.items():
                if last[name] is not choice or value in ("", None):
                    continue
                where = f"{choice.where}.parameters.{name}".lstrip(".")
                for path in mesh.parameters.get(name, {}).get(release.name, ()):
                    layers.append((where, put({}, path, value)))
            if release.name in choice.values:
                where = f"{choice.where}.values.{release.name}"
                layers.append((where, _mapping(choice.values[release.name], where)))
        return layers


def _together(layers: Iterable[tuple[str, Json]]) -> Json:
    return functools.reduce(merged, (values for _, values in layers), {})


def unknown_values(values: Json, known: Json, open_paths: Iterable[str] = ()) -> list[str]:
    """Return a line for each of these values that a chart would ignore.

    Below an empty map or list, or nothing, a chart takes anything. ``open_paths`` (``meshConfig``, ``global.platform``)
    and all below them are taken without being listed.
    """
    ways = [tuple(path.split(".")) for path in open_paths]
    return [_unknown_line(path, known) for path in _unknown(values, known, ways, ())]


def _unknown(
    values: Mapping[str, Any], known: Mapping[str, Any], ways: Sequence[tuple[str, ...]], at: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        path = (*at, str(key))
        if any(path[: len(way)] == way for way in ways):
            continue
        if key in known:
            below = known[key]
            if isinstance(value, Mapping) and isinstance(below, Mapping) and not _is_free(str(key), below):
                yield from _unknown(value, _with_resources(below), ways, path)
        elif isinstance(value, Mapping) and any(way[: len(path)] == path for way in ways):
            yield from _unknown(value, {}, ways, path)
        else:
            yield path


def _is_free(name: str, below: Mapping[str, Any]) -> bool:
    return not below or name.lower().endswith(_HANDED_ON) or all("/" in str(key) for key in below)


def _with_resources(below: Mapping[str, Any]) -> Mapping[str, Any]:
    # Charts often list only the requests of a container's resources, and pass on the limits too.
    return dict.fromkeys(_RESOURCES) if set(below) <= _RESOURCES else below


def _unknown_line(path: tuple[str, ...], known: Json) -> str:
    name = ".".join(path)
    every = list(_paths(known, ()))
    level = [p[-1] for p in every if p[:-1] == path[:-1]]
    near = [".".join((*path[:-1], key)) for key in difflib.get_close_matches(path[-1], level, n=1)]
    near = near or [".".join(p) for p in every if p[-1] == path[-1]]
    near = near or difflib.get_close_matches(name, [".".join(p) for p in every], n=1, cutoff=0.8)
    return f"{name} is not known" + (f" (did you mean {near[0]}?)" if near else "")


def _paths(known: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in known.items():
        yield (*at, str(key))
        if isinstance(value, Mapping):
            yield from _paths(value, (*at, str(key)))


def _mapping(value: Any, where: str) -> Json:
    if isinstance(value, str | Path):
        try:
            value = parse_yaml(Path(value).read_bytes(), where) or {}
        except OSError as error:
            raise UsageError(f"{where}: {str(value)!r}: {error.strerror}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{where}: must be a mapping or a YAML file of one")
    return value


def put(values: Json, path: str, value: Any) -> Json:
    """Set ``global.proxy.resources.limits.cpu`` in nested mappings."""
    *way, last = path.split(".")
    at = values
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value
    return values


def merged(first: Json, second: Json) -> Json:
    """Merge by Helm's rule: mappings merge, anything else is replaced by the second."""
    result = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result
