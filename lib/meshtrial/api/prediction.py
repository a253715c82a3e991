"""What treatments would add to a described system as an object, like ``meshtrial predict``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshtrial.api.study import RecordedStudy, open_study
from meshtrial.design.system import System, read_system
from meshtrial.errors import UsageError
from meshtrial.prediction import Options, Prediction, page, predict_all
from meshtrial.report import Fragment
from meshtrial.report.figure import Figure
from meshtrial.report.markup import Displayable, Form, join


@dataclass(frozen=True, repr=False)
class PredictedSystem(Displayable):
    """Predictions of one system, one per treatment.

    Attributes
    ----------
    system : System
        The services, calls and paths.
    predictions : tuple of Prediction
        The numbers, as the library represents them.
    currency : str
        Shown beside amounts of money.
    """

    system: System
    predictions: tuple[Prediction, ...]
    currency: str = ""

    def totals(self) -> Fragment:
        """Return a table of cores, memory and money by treatment."""
        return page.totals(self.predictions, self.currency)

    def services(self) -> Fragment:
        """Return a table of cores by service for each treatment, the largest first."""
        return join(*map(page.services, self.predictions))

    def paths(self) -> Fragment:
        """Return a table of the latency that is added to each path."""
        return page.paths(self.predictions)

    def limits(self) -> Fragment:
        """Return the assumptions, and why some amounts have no number."""
        return page.limits(self.predictions)

    def cores(self) -> Figure:
        """Draw the cores that each treatment adds, with their intervals."""
        return page.cores(self.predictions)

    def laid_out(self, form: Form) -> str:
        """Return the totals in one of their forms."""
        return self.totals().laid_out(form)


def predict(
    system: str | Path | System,
    studies: Sequence[str | Path | RecordedStudy],
    *,
    treatment: str = "",
    against: str = "",
    core_hour: float = 0.0,
    gib_hour: float = 0.0,
    currency: str = "",
    request_cores: float = 0.0,
    request_gib: float = 0.0,
    nodes: int = 0,
    app_cpu_us: float = 0.0,
    model_error: float | None = None,
) -> PredictedSystem:
    """Predict what treatments would add to a system: cores, memory, money and latency, with intervals.

    Parameters
    ----------
    system : path or System
        A system file (docs/how-to/your-system.md), or a system.
    studies : sequence of paths or RecordedStudy
        Recorded studies of one machine, such as ``building_blocks``.
    treatment, against : str, optional
        By default every treatment of the studies, compared with their baseline.
    core_hour, gib_hour : float, optional
        Prices of a core and of a GiB for an hour; without them no money is shown.
    currency : str, optional
        Shown beside amounts of money.
    request_cores, request_gib : float, optional
        What each proxy requests of the scheduler.
    nodes : int, optional
        Number of nodes that carry the system. If it is 0, calls cost as on nodes that carry nothing else.
    app_cpu_us : float, optional
        CPU per request of the studies' application on the target, if that is another machine.
    model_error : float, optional
        Standard deviation of measured over predicted amounts; by default that of generated systems.

    Raises
    ------
    MeshtrialError
        If a file cannot be read, or the studies do not hold what is needed; the message says which.

    Examples
    --------
    >>> import meshtrial as mt
    >>> shop = mt.predict(
    ...     "data/systems/online_shop.yaml",
    ...     ["data/sample/decomposition-20261128T060908Z-b5e99d19.tar.xz"],
    ...     treatment="sidecar+mtls",
    ... )
    >>> shop.predictions[0].proxies
    14
    """
    if not studies:
        raise UsageError("studies is empty; name at least one recorded study, such as one of building_blocks")
    read = system if isinstance(system, System) else read_system(Path(system))
    recorded = [one if isinstance(one, RecordedStudy) else open_study(one) for one in studies]
    options = Options(core_hour, gib_hour, request_cores, request_gib, nodes, app_cpu_us, model_error)
    found = predict_all(read, [one.data for one in recorded], treatment, against, options)
    return PredictedSystem(read, found, currency)
