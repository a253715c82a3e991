"""Every setting of every study, declared once: its type, its bounds or allowed values, its meaning and its default.

Notebooks' parameters cells, ``-p`` and ``--help``, YAML designs, the checks of a load, sealed plans and the reference
read this declaration. A study takes some of the settings (:class:`~meshtrial.design.parameters.Taken`). Bounds that
apply to a field of a load too have a name, which `design.load` uses. A default may be out of bounds: an empty list or 0
then leaves the value to the profile.
"""

from typing import Annotated

from msgspec import Meta, Struct

from meshtrial.design.changes import CHANGES

PROFILES = ("quick", "standard", "full")
# Protocols with streams, over which the server sends events for as long as the run lasts.
STREAMED = ("sse", "grpc-stream")
PROTOCOLS = ("http1", "h2", "grpc", "mixed", "tcp", *STREAMED)
# When the requests of an open load leave: evenly, over staggered connections, or each moved by up to a tenth of the
# wait before it, so that they have no fixed phase to anything periodic.
ARRIVALS = ("uniform", "jitter")
# Whether the deployments of a block run at the same time, as far as they can, or one after another.
DEPLOYMENT_MODES = ("concurrent", "sequential")
MOST_REPLICAS, TIERS = 200, 3

# Bounds of settings and of the fields of loads that are made of them.
Rate = Annotated[float, Meta(ge=0, le=1e6)]
PositiveRate = Annotated[float, Meta(gt=0, le=1e6)]
Connections = Annotated[int, Meta(ge=1, le=20_000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Warmup = Annotated[float, Meta(ge=0, le=3600)]
Moment = Annotated[float, Meta(ge=0, le=86_400)]
PayloadBytes = Annotated[int, Meta(ge=0, le=262_144)]  # fortio's largest
ResponseBytes = Annotated[int, Meta(ge=0, le=2**20)]
Headers = Annotated[int, Meta(ge=0, le=100)]
Timeout = Annotated[float, Meta(ge=0.001, le=3600)]
Arrivals = Annotated[str, ARRIVALS]
SpokenProtocol = Annotated[str, PROTOCOLS]
Replicas = Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]
Generators = Annotated[int, Meta(ge=1, le=MOST_REPLICAS)]
Slices = Annotated[int, Meta(ge=1, le=100)]
RampSteps = Annotated[int, Meta(ge=2, le=100)]
ChangeInterval = Annotated[float, Meta(gt=0, le=86_400)]
ChangeCycles = Annotated[int, Meta(ge=1)]
UnusedServices = Annotated[int, Meta(ge=0, le=10_000)]
IdleConnections = Annotated[int, Meta(ge=0, le=20_000)]
ChurnPerMinute = Annotated[float, Meta(ge=0, le=60_000)]

_REINSTALL = ("", "run", "block", "once")


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of all studies. Those that a study does not take keep their default."""

    profile: Annotated[str, PROFILES, "length of the study; sets the parameters that are left empty or 0"] = "quick"
    backend: Annotated[str, ("local", "kubernetes"), "where the study runs"] = "local"
    treatments: Annotated[str, "comma-separated; the first that is not a twin is the baseline"] = ""
    app: Annotated[
        str, "application behind the data plane: echo, event-streams, counter-api, details, details-nodelay"
    ] = "echo"
    blocks: Annotated[int, Meta(ge=0, le=1000), "passes over all treatments; 0: set by the profile"] = 0
    sessions: Annotated[int, Meta(ge=1, le=1000), "number of sessions over which the blocks are divided"] = 1
    session_gap: Annotated[str, "pause between two sessions, for example 10m, 1h or 24h"] = ""
    design: Annotated[str, "YAML file of further settings; settings that are given directly override it"] = ""
    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=TIERS, le=TIERS * MOST_REPLICAS, multiple_of=TIERS)], ...],
        "comma-separated numbers of endpoints; empty: set by the profile",
    ] = ()
    order: Annotated[
        str,
        ("randomised", "ascending", "growing"),
        "order of the sizes; growing keeps one deployment and adds endpoints to it",
    ] = "randomised"
    changes: Annotated[str, f"comma-separated: {', '.join(CHANGES)}; empty: all of them"] = ""
    change_every_s: Annotated[
        float,
        Meta(ge=0, le=3600),
        "seconds between changes, within which all requests must follow a change; 0: the default",
    ] = 0.0
    cycles: Annotated[
        int, Meta(ge=0, le=100), "times that a run makes and reverts each change; 0: set by the profile"
    ] = 0
    churn_per_min: Annotated[
        tuple[ChurnPerMinute, ...], "comma-separated background changes per minute, each a load; empty: the default"
    ] = ()
    restart_at_s: Annotated[Moment, "seconds into a run at which the restart begins; 0: a third of the run"] = 0.0
    around_s: Annotated[Moment, "length in seconds of the window that begins with the restart; 0: half of the run"] = (
        0.0
    )
    delays_us: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=10_000_000)], ...],
        "comma-separated injected delays in whole microseconds; empty: only the A/A twin",
    ] = (20, 50, 100, 200, 500)
    full: Annotated[bool, "true runs the simulation at full size, up to 4000 studies per cell"] = False
    systems: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=999_999_999)], ...],
        "comma-separated seeds of the generated systems; empty: 1 to 20",
    ] = ()
    versions: Annotated[str, "versions of the local proxies (docs/reference/parameters.md); empty: none"] = ""
    probe: Annotated[bool, "true counts system calls per request with strace, after the runs"] = False
    trace_sampling: Annotated[
        float, Meta(ge=0.1, le=100), "percentage of requests that are traced if the treatment has observability"
    ] = 100.0
    keep_awake: Annotated[bool, "true keeps this machine's idle cores awake during the study, if that is permitted"] = (
        False
    )

    study_dir: Annotated[
        str, "folder of a recorded study, or of an interrupted one to continue; empty: a new study"
    ] = ""
    measure: Annotated[bool, "false measures nothing and reports the study in study_dir"] = True
    next_session: Annotated[bool, "true runs only the session that is due now (meshtrial run --next-session)"] = False
    single_hop: Annotated[str, "comma-separated folders of studies of a single hop, which the prediction is from"] = ""
    part: Annotated[str, "share of the blocks to run here, e.g. 1/3; empty: all of them"] = ""

    rps: Annotated[Rate, "requests per second over all connections; 0: set by the profile"] = 0.0
    rates: Annotated[
        tuple[Annotated[float, Meta(gt=0, le=1e6)], ...],
        "comma-separated requests per second; empty: set by the profile",
    ] = ()
    rate_per_replica: Annotated[
        Rate, "requests per second for each load-generator endpoint, instead of rates; 0: off"
    ] = 0.0
    connections: Annotated[
        tuple[Connections, ...],
        "comma-separated connections over all generators, each a load; empty: set by the profile",
    ] = ()
    duration_s: Annotated[Seconds, "measured seconds of a run; 0: set by the profile"] = 0.0
    warmup_s: Annotated[Warmup, "discarded seconds before the measured ones; 0: set by the profile"] = 0.0
    protocol: Annotated[SpokenProtocol, "mixed: half HTTP/1.1, half gRPC"] = "http1"
    payload_bytes: Annotated[PayloadBytes, "bytes of the request's body, which is echoed; 0: GET without a body"] = 0
    response_bytes: Annotated[
        ResponseBytes, "bytes of the response's body or of each event; 0: the application's own"
    ] = 0
    headers: Annotated[Headers, "number of further request headers, of 64 bytes each"] = 0
    keepalive: Annotated[bool, "false closes the connection after every request"] = True
    connection: Annotated[str, "keep-alive, close, or both as separate families; empty: as keepalive"] = ""
    closed_loop: Annotated[bool, "true sends each request after the previous response, instead of at a rate"] = False
    capacity: Annotated[bool, "true also searches every treatment's capacity, as a separate family"] = True
    objective: Annotated[
        str, "condition for a rate to count as capacity, e.g. p99<10ms; empty: only that it is reached"
    ] = ""
    ramp: Annotated[RampSteps, "number of steps in which the rate rises to rps; 0: a constant rate"] = 0
    arrivals: Annotated[Arrivals, "jitter moves each send by up to 10 % of the wait before it"] = "uniform"
    catchup: Annotated[bool, "false skips overdue requests instead of sending them late"] = True
    timeout_s: Annotated[Timeout, "seconds that the client waits for a response"] = 5.0
    hold_ms: Annotated[
        float, Meta(ge=0, le=1000), "milliseconds for which the client and the server each hold a request"
    ] = 100.0
    spread: Annotated[
        int, Meta(ge=0, le=200), "local: endpoints that one sidecar sends to; 0: all, too many for one machine"
    ] = 2
    replicas: Annotated[
        int, Meta(ge=1, le=64), "replicas of the application, among which the data plane balances requests"
    ] = 1
    generators: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=64)], ...],
        "comma-separated numbers of load generators that share rate and connections, each a load",
    ] = (1,)
    unused_services: Annotated[
        tuple[UnusedServices, ...], "comma-separated numbers of unused services, each a load"
    ] = (0,)
    idle_connections: Annotated[
        tuple[IdleConnections, ...],
        "local: comma-separated numbers of connections held open without requests, each a load",
    ] = (0,)
    after_s: Annotated[Warmup, "seconds after the load at which the proxies' memory is read again; 0: it is not"] = 0.0
    slices: Annotated[
        Slices, "slices of a run, between which other deployments are measured; 0: set by the profile"
    ] = 0
    slice_warmup_s: Annotated[Warmup, "discarded seconds before each slice; 0: set by the profile"] = 0.0
    deployment_mode: Annotated[
        str,
        ("", *DEPLOYMENT_MODES),
        "concurrent: a block's deployments take turns in slices; empty: concurrent if there are slices",
    ] = ""

    seed: Annotated[
        int, Meta(ge=0, le=2**32 - 1), "random seed of the order of all runs; 0: drawn, and sealed in the plan"
    ] = 0
    stopping: Annotated[str, "fixed, precision:0.05 (half-width of every primary interval) or two-looks"] = "fixed"
    alpha: Annotated[float, Meta(ge=1e-6, le=0.2), "error level of a family"] = 0.05
    margin: Annotated[
        str, "effects that are too small to matter (docs/reference/parameters.md); empty: the default"
    ] = ""
    scale: Annotated[str, "effect that decides verdicts (docs/reference/parameters.md); empty: the default"] = ""
    primary: Annotated[str, "at most three responses with confirmatory verdicts; empty: the study's default"] = ""

    # Read only by the Kubernetes backend, whose other options are in the file that cluster_file names.
    kubeconfig: Annotated[
        str, "kubeconfig file; empty: KUBECONFIG, ~/.kube/config, or the cluster in which this runs"
    ] = ""
    context: Annotated[str, "context in the kubeconfig file; empty: its current one"] = ""
    namespace: Annotated[str, "beginning of the namespaces' names; empty: meshtrial-STUDY"] = ""
    cluster_file: Annotated[str, "YAML file with all other options of the Kubernetes backend"] = ""
    mesh_reinstall: Annotated[str, _REINSTALL, "when the mesh is reinstalled; empty: run"] = ""
    app_reinstall: Annotated[str, _REINSTALL, "when the application is redeployed; empty: run"] = ""


# The headings of the settings for readers, each by the first setting below it.
GROUPS = {
    "profile": "Study",
    "study_dir": "Recorded study",
    "rps": "Load",
    "seed": "Inference",
    "kubeconfig": "Cluster",
}
# Where the parameters cells of the notebooks begin and end.
FIRST, LAST = ("profile", "backend", "treatments"), ("blocks", "margin", "study_dir", "measure", "design")
# Groups of settings that studies take.
GENERAL = (
    *("profile", "backend", "treatments", "blocks", "sessions", "session_gap", "design"),
    *("study_dir", "measure", "next_session", "part", "keep_awake"),
    *("seed", "stopping", "alpha", "margin", "scale", "primary"),
)
CLUSTER = ("kubeconfig", "context", "namespace", "cluster_file", "mesh_reinstall", "app_reinstall")
SLICED = ("slices", "slice_warmup_s", "deployment_mode")
LOAD = (
    *("rps", "connections", "duration_s", "warmup_s", "payload_bytes", "response_bytes", "headers", "keepalive"),
    *("arrivals", "catchup", "timeout_s", "replicas", "generators", *SLICED),
)
HELD = ("idle_connections", "after_s")
CALLED = ("app", "protocol", "probe", "ramp", "unused_services", "versions", *HELD)
