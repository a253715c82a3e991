"""Helm charts, fetched once per session and recorded by digest, and the values that they are installed with.

Every run of a study installs from the same bytes: a chart of a repository is pulled into a folder of the session, and a
chart that is given by path is used unchanged.

Values are merged in Helm's order: the mesh's files, fairness and generated keys, then the user's values for the mesh
and for its version. Helm ignores a value that its chart does not list. Here it is a problem: a misspelt limit makes a
comparison unfair, and nobody would notice.
"""

import contextlib
import difflib
import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from meshtrial.envoy.keys import issuer_chain
from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import Mesh, MeshOverride, Release
from meshtrial.testbed.kubernetes.meshversions import is_version
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.typed import parse_yaml

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
            helm.run([helm.program(self._options), "pull", *chart, "-d", str(folder)], _PULL_S)
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
            if switch.strip() and not _known_at(defaults, switch.strip()):
                put(defaults, switch.strip(), None)
        if dependency.get("tags"):
            defaults.setdefault("tags", {})
    return defaults


def _known_at(values: Json, path: str) -> bool:
    at: Any = values
    for key in path.split("."):
        if not isinstance(at, dict) or key not in at:
            return False
        at = at[key]
    return True


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
        together: Json = {}
        for _, values in self._after_files(release):
            together = merged(together, values)
        return together

    def layers(self, release: Release) -> list[tuple[str, Json]]:
        """Return all values with their origins, later ones winning."""
        mesh = self._mesh
        files = [(name, _mapping(mesh.folder / name, f"mesh {mesh.name}: {name}")) for name in release.values]
        return [*files, *self._after_files(release)]

    def digest(self, release: Release) -> str:
        """Return the SHA-256 of the values, without the keys that every installation generates."""
        together: Json = {}
        for where, values in self.layers(release):
            if not where.startswith(_GENERATED):
                together = merged(together, values)
        return hashlib.sha256(json.dumps(together, default=str).encode()).hexdigest()

    def _after_files(self, release: Release) -> list[tuple[str, Json]]:
        mesh, layers = self._mesh, []
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
