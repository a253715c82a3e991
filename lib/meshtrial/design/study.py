"""The description of one study: what is compared, under which loads, and by which rules.

A :class:`Study` is plain data that can be written to JSON and read back unchanged. Two studies are the same experiment
exactly when their dictionaries are equal.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from meshtrial.design.load import Load, SlicedLoad
from meshtrial.design.parameters import Value
from meshtrial.design.sealing import sealed
from meshtrial.design.settings import DEPLOYMENT_MODES
from meshtrial.errors import UsageError
from meshtrial.margin import Margin
from meshtrial.typed import read
from meshtrial.vocabulary import BETWEEN, Correction, OwnFailures, Scale, Unit

if TYPE_CHECKING:
    Loads: TypeAlias = tuple[Load, ...]
else:  # msgspec reads no subclasses of a dataclass, so `Study.from_dict` reads the loads
    Loads = tuple[Any, ...]

NO_MESH = "none"
TWIN_SUFFIX = "-aa"
RESTARTS = ("app", "proxies", "control-plane")
ORDERS = ("randomised", "ascending", "growing", "sequential")
_RESTART = "restart-"
# Applications of the project, beside generated systems. A single name after an @ is an application if it is one of
# these, otherwise a version.
APPS = (
    *("echo", "event-streams", "counter-api", "details", "details-nodelay"),
    *("tiers", "two-versions", "bookinfo", "emojivoto"),
)
VERSION_NAME, APP_NAME = re.compile(r"[A-Za-z0-9._-]+"), re.compile(r"[a-z0-9-]+")
_SYSTEM = re.compile(r"system-[1-9]\d{0,8}")
_TREATMENT = re.compile(
    rf"(?P<dataplane>[a-z0-9-]+)(?:@(?P<version>(?:{VERSION_NAME.pattern})?))?"
    rf"(?P<features>(?:\+[a-z0-9.-]+)*)(?:@(?P<app>{APP_NAME.pattern}))?"
)


def is_app(name: str) -> bool:
    """Whether this is the name of an application of the project."""
    return name in APPS or is_system(name)


def is_system(name: str) -> bool:
    """Whether this is the name of a generated system: ``system-7``, of the seed 7 (`design.generated`)."""
    return _SYSTEM.fullmatch(name) is not None


@dataclass(frozen=True)
class Treatment:
    """A data plane with a set of features: ``dataplane[@version][+feature...][@app]``.

    A single name after an @ is an application if :func:`is_app` knows it, otherwise a version: ``none@details``,
    ``sidecar@new``. A user's own application is written ``none@@mine``.
    """

    dataplane: str  # `none`, `sidecar`, `node-proxy`, `istio`, ..
    features: tuple[str, ...] = ()  # in the order written; `delay-50us` carries its size in its name
    app: str = ""  # the application, where treatments differ in it; empty is that of the study
    twin: bool = False  # the A/A twin: deployed and measured like every other treatment, identical to the baseline
    # One of `RESTARTS`, which is restarted under load; written like a feature, `sidecar+restart-app`
    restart: str = ""
    version: str = ""  # one of several declared versions of the data plane; empty is the default one

    @classmethod
    def parse(cls, text: str) -> Treatment:
        """Read ``sidecar+mtls@details``; a data plane that ends in ``-aa`` is a twin."""
        match = _TREATMENT.fullmatch(text.strip())
        if match is None or (match["version"] == "" and not match["app"]):
            raise UsageError(
                f"treatment {text!r} is not of the form dataplane[@version][+feature...][@app], e.g. sidecar+mtls"
            )
        dataplane, version, app = match["dataplane"], match["version"] or "", match["app"] or ""
        if is_app(version) and not app and not match["features"]:
            version, app = "", version
        if version.endswith(TWIN_SUFFIX):
            meant = f"{dataplane.removesuffix(TWIN_SUFFIX)}{TWIN_SUFFIX}@{version.removesuffix(TWIN_SUFFIX)}"
            raise UsageError(f"treatment {text!r}: the twin of a version is written {meant}")
        features = tuple(match["features"].split("+")[1:])
        if len(set(features)) != len(features):
            raise UsageError(f"treatment {text!r} names a feature twice")
        restarts = [name.removeprefix(_RESTART) for name in features if name.startswith(_RESTART)]
        if len(restarts) > 1 or set(restarts) - set(RESTARTS):
            allowed = ", ".join(_RESTART + part for part in RESTARTS)
            raise UsageError(f"treatment {text!r}: restarts at most one part; must be {allowed}")
        features = tuple(name for name in features if not name.startswith(_RESTART))
        twin = dataplane.endswith(TWIN_SUFFIX)
        plain = dataplane.removesuffix(TWIN_SUFFIX)
        return cls(plain, features, app, twin, restarts[0] if restarts else "", version)

    @property
    def name(self) -> str:
        """The text that :meth:`parse` reads."""
        head = self.dataplane + (TWIN_SUFFIX if self.twin else "") + (f"@{self.version}" if self.version else "")
        restart = (_RESTART + self.restart,) if self.restart else ()
        whole = "+".join((head, *self.features, *restart))
        if not self.app:
            return whole
        alone = "@" not in whole and "+" not in whole and not is_app(self.app)
        return f"{whole}@@{self.app}" if alone else f"{whole}@{self.app}"

    @property
    def versioned(self) -> str:
        """The data plane with its version, ``istio@1.30``."""
        return f"{self.dataplane}@{self.version}" if self.version else self.dataplane

    def has(self, feature: str) -> bool:
        """Whether the treatment carries this feature."""
        return feature in self.features

    def as_twin(self) -> Treatment:
        """The A/A twin of this treatment."""
        return dataclasses.replace(self, twin=True)


@dataclass(frozen=True)
class Contrast:
    """A treatment and what it is compared with, both by name; contrasts of one family are corrected together."""

    treatment: str
    baseline: str
    family: str = ""


@dataclass(frozen=True)
class Gates:
    """Thresholds that every run is checked against before any statistic is computed."""

    rate_tolerance: float = 0.02  # allowed distance of achieved/requested rate from 1, open-rate loads only
    error_ratio: float = 0.01  # largest share of failed requests
    # Largest share of sends that left later than their schedule by more than one interval of their connection (at least
    # 1 ms): the next send was already due. If a late answer was the cause, the treatment is late, otherwise the
    # generator.
    late_ratio: float = 0.05
    generator_cpu: float = 0.70  # largest share of the CPU the load generator may use that it did use
    sample_floor: float = 100.0  # a quantile q is reported only where N (1 - q) reaches this
    # Largest share of the machine's CPU time that programs other than the run's own used; None where it is not checked
    foreign_load: float | None = 0.10


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question, with everything that is decided before the first run to answer it."""

    name: str
    title: str
    question: str
    backend: str
    app: str
    treatments: tuple[Treatment, ...]
    baseline: Treatment
    loads: Loads
    primary: tuple[str, ...]
    margins: Mapping[str, Margin]
    blocks: int
    seed: int
    correction: Correction
    scales: Mapping[str, Scale]  # which effect carries the verdicts of a response; a ratio where it is not listed
    own_failures: OwnFailures
    deployment_mode: str  # one of `DEPLOYMENT_MODES`
    stopping: Mapping[str, Value]
    sessions: int  # stretches of time in which whole blocks run; between them everything ends
    session_gap_s: float  # from the end of one session to the beginning of the next, at least
    # With this many sessions or places, sessions are the unit of inference; 0 in plans whose unit is always the block
    unit_sessions: int = 0
    alpha: float = 0.05
    contrasts: tuple[Contrast, ...] = ()
    gates: Gates = Gates()
    order: str = "randomised"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [t.name for t in self.treatments]
        if len(set(names)) != len(names):
            raise UsageError(f"study {self.name}: a treatment is listed twice in {', '.join(names)}")
        if self.baseline not in self.treatments:
            raise UsageError(f"study {self.name}: the baseline {self.baseline.name} is not among the treatments")
        if self.blocks < 1:
            raise UsageError(f"blocks = {self.blocks}: must be 1 or more")
        if not 1 <= self.sessions <= self.blocks:
            raise UsageError(f"sessions = {self.sessions}: must be from 1 to the number of blocks, {self.blocks}")
        if not 0 < self.alpha < 0.5:
            raise UsageError(f"alpha = {self.alpha:g}: must be more than 0 and less than 0.5")
        if len(self.primary) > 3:
            raise UsageError(f"study {self.name}: at most three primary responses, not {len(self.primary)}")
        labels = [load.label for load in self.loads]
        if not labels or len(set(labels)) != len(labels):
            raise UsageError(f"study {self.name}: the loads must be distinct and at least one: {', '.join(labels)}")
        chosen: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            ("correction", self.correction, get_args(Correction)),
            ("own_failures", self.own_failures, get_args(OwnFailures)),
            ("order", self.order, ORDERS),
            ("deployment_mode", self.deployment_mode, DEPLOYMENT_MODES),
            *((f"scales.{name}", scale, get_args(Scale)) for name, scale in self.scales.items()),
        )
        for name, value, (*others, last) in chosen:
            if value not in (*others, last):
                raise UsageError(f"{name} = {value!r}: must be {', '.join(others)} or {last}")
        for contrast in self.contrasts:
            for name in (contrast.treatment, contrast.baseline):
                if name not in names:
                    raise UsageError(
                        f"contrast {contrast.treatment} against {contrast.baseline}: {name} is not a treatment"
                    )

    @property
    def parameters(self) -> Mapping[str, Value]:
        """The settings that the study was built from; empty for a study that was built otherwise."""
        given = self.options.get("parameters")
        return given if isinstance(given, Mapping) else {}

    def unit(self, sessions: int) -> Unit:
        """Return the unit of inference for this number of sessions or places."""
        return "session" if 0 < self.unit_sessions <= sessions else "block"

    @property
    def may_stop_early(self) -> bool:
        """Whether the stopping rule may end the study before the last planned block."""
        return self.stopping.get("rule", "fixed") != "fixed"

    @property
    def twin(self) -> Treatment | None:
        """The baseline's A/A twin, if the study has one."""
        twin = self.baseline.as_twin()
        return twin if twin in self.treatments else None

    def load(self, label: str) -> Load:
        """Return the load with this label."""
        return next(load for load in self.loads if load.label == label)

    def take_turns(self, load: Load) -> bool:
        """Whether deployments of a block are measured in turns, slice by slice, as far as they can be concurrent."""
        return self.deployment_mode == "concurrent" and isinstance(load, SlicedLoad) and load.slices > 1

    def all_contrasts(self) -> tuple[Contrast, ...]:
        """Return the declared contrasts; without any, every treatment except the twin against the baseline."""
        if self.contrasts:
            return self.contrasts
        return tuple(Contrast(t.name, self.baseline.name) for t in self.treatments if t != self.baseline and not t.twin)

    def families(self) -> Mapping[str, tuple[Contrast, ...]]:
        """Return the contrasts of each family by its name; undeclared ones are in a family without a name."""
        families: dict[str, tuple[Contrast, ...]] = {} if self.contrasts else {"": ()}
        for contrast in self.all_contrasts():
            families[contrast.family] = (*families.get(contrast.family, ()), contrast)
        return families

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return dataclasses.asdict(self) | {
            "options": sealed(self.options),
            "treatments": [treatment.name for treatment in self.treatments],
            "baseline": self.baseline.name,
            "loads": [load.to_dict() for load in self.loads],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Study:
        """The inverse of :meth:`to_dict`."""
        made = {
            "treatments": [Treatment.parse(name) for name in data["treatments"]],
            "baseline": Treatment.parse(data["baseline"]),
            "loads": [Load.from_dict(load, f"loads[{index}]") for index, load in enumerate(data["loads"])],
        }
        return read(cls, {**data, **made})


def with_pairs(study: Study) -> tuple[Contrast, ...]:
    """Return a study's contrasts and, as a further family, all pairs of its treatments, the later against the earlier.

    The baseline and its twin are in no pair, and no pair is compared twice.
    """
    names = [treatment.name for treatment in study.treatments if not treatment.twin and treatment != study.baseline]
    declared = tuple(contrast for contrast in study.all_contrasts() if contrast.family != BETWEEN)
    known = {frozenset((contrast.treatment, contrast.baseline)) for contrast in declared}
    pairs = (Contrast(later, earlier, BETWEEN) for earlier, later in combinations(names, 2))
    return (*declared, *(pair for pair in pairs if frozenset((pair.treatment, pair.baseline)) not in known))
