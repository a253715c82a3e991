"""Helm charts, fetched once a session and recorded by digest.

Every run of a study installs from the same bytes: a chart of a repository is pulled into a folder of the session,
one by path is used as it lies.
"""

import contextlib
import hashlib
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from meshtrial.errors import MissingToolError, TestbedError, UsageError
from meshtrial.testbed.kubernetes import helm
from meshtrial.testbed.kubernetes.manifests import Json
from meshtrial.testbed.kubernetes.meshdata import Mesh, Release
from meshtrial.testbed.kubernetes.meshversions import is_version
from meshtrial.testbed.kubernetes.options import KubernetesOptions
from meshtrial.testbed.kubernetes.values import merged, put
from meshtrial.typed import parse_yaml

_PULL_S = 120.0
_UNREACHABLE = re.compile(r"cannot be reached|dial tcp|no end within|x509|tls:|deadline|status code 5")
_MEND = "check the network and the version, or give the chart by meshes.<mesh>.charts.<release>.path"
# Istio's charts keep their defaults below this key and take them one level higher.
_ISTIO_DEFAULTS = "_internal_defaults_do_not_set"


@dataclass(frozen=True)
class Chart:
    """A chart that can be installed."""

    name: str
    version: str
    app_version: str
    source: str  # the repository, or the path that the user gave
    sha256: str  # of the archive; of a folder, over the names and contents of its files
    path: Path = field(compare=False)  # what is given to Helm
    values: Json = field(compare=False, repr=False, default_factory=dict)  # every one that the chart lists

    def record(self) -> dict[str, str]:
        """Plain data for a record; of a chart by path its name, for where it lies is no record's business."""
        told = {k: v for k, v in asdict(self).items() if k not in ("path", "values")}
        return told | ({"source": self.path.name} if Path(self.source).expanduser() == self.path else {})


class Charts:
    """The charts of one session."""

    def __init__(self, options: KubernetesOptions) -> None:
        self._options = options
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._read: dict[tuple[str, ...], Chart] = {}
        self._of: dict[tuple[str, str], Chart] = {}
        self._unreachable: dict[str, str] = {}

    def of(self, mesh: Mesh, release: Release) -> Chart:
        """The chart of a release, fetched at first use.

        One that cannot be had is a TestbedError, with the same line for every chart of a repository out of reach.
        """
        where = f"mesh {mesh.name}, release {release.name}"
        source = (release.repository, release.chart, release.version or mesh.version, release.path)
        if source not in self._read:
            path = Path(release.path).expanduser()
            own = read_chart(path, release.path, where) if release.path else None
            self._read[source] = own or self._pulled(*source[:3], where)
        chart = self._of[mesh.name, release.name] = self._read[source]
        return chart

    def versions(self, mesh: Mesh) -> dict[str, str]:
        """What a run of this mesh was installed from, for its record."""
        fetched = [(release.name, self._of.get((mesh.name, release.name))) for release in mesh.releases]
        return {f"chart {name}": f"{chart.version} (sha256:{chart.sha256})" for name, chart in fetched if chart}

    def named(self, mesh: Mesh) -> Mesh:
        """A version with what its charts call its images besides: Linkerd's chart 2026.6.3 is of edge-26.6.3."""
        declared = mesh.declared
        if declared is None or mesh.version not in declared.names:
            return mesh
        charts = [self._of.get((mesh.name, release.name)) for release in mesh.releases]
        more = [chart.app_version for chart in charts if chart and is_version(chart.version, mesh.version)]
        names = tuple(dict.fromkeys((*declared.names, *filter(None, more))))
        return replace(mesh, declared=replace(declared, names=names))

    def record(self) -> dict[str, dict[str, dict[str, str]]]:
        """By mesh and release, what was fetched so far."""
        records: dict[str, dict[str, dict[str, str]]] = {}
        for (mesh, release), chart in self._of.items():
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
            words = str(error).rpartition("Error: ")[2]
            if not _UNREACHABLE.search(words):
                raise TestbedError(f"{where}: chart {name} {version} cannot be fetched: {words}; {_MEND}") from None
            line = f"chart repository {repository} cannot be reached ({words}); {_MEND}"
            self._unreachable[repository] = line
            raise TestbedError(line) from None
        archive = next(folder.glob("*.tgz"), None)
        if archive is None:
            raise TestbedError(f"{where}: 'helm pull {' '.join(chart)}' left no archive")
        return read_chart(archive, f"{repository} {name} {version}".strip(), where)


def read_chart(path: Path, source: str, where: str) -> Chart:
    """A chart by its folder or archive; a TestbedError when it is not one."""
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
    """A chart's folder; an archive is unpacked for as long."""
    if chart.is_dir():
        yield chart
        return
    with tempfile.TemporaryDirectory(prefix="meshtrial-chart-") as folder:
        with tarfile.open(chart) as archive:
            archive.extractall(folder, filter="data")
        yield next(Path(folder).iterdir())


def _yaml(file: Path) -> Json:
    """What a file of a chart says; nothing where it is not there."""
    content: Json = (parse_yaml(file.read_bytes(), file.name) if file.is_file() else None) or {}
    return content


def _defaults(chart: Path) -> Json:
    """The values that a chart lists: its own, those of the charts inside below their names, and the global ones."""
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
        # A chart may be there twice, by other names.
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
