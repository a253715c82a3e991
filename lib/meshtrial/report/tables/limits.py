"""What could be wrong, in one list to be read first; and how the verdicts were reached and what they do not say.

The numbers behind what could be wrong stand under validity; method and limits come from the plan itself.
"""

from __future__ import annotations

from meshtrial.design.responses import MARKED
from meshtrial.design.study import Study
from meshtrial.records import builds
from meshtrial.records.dataset import StudyData
from meshtrial.report import frames, wording
from meshtrial.report.markup import Fragment, box, bullets, fold, heading, join, prose
from meshtrial.report.tables.headline import REFERENCE_NOTE, twin_called, twin_sentences
from meshtrial.report.tables.validity import course_of_runs, excluded

_ONE_MACHINE = (
    "Client, proxies, app and load generator share one machine: milliseconds and ratios are of that machine, and "
    "a verdict holds for the load that was measured."
)
_THIS_CLUSTER = "The verdicts hold for this cluster, these versions, this placement and this load."


def doubts(data: StudyData) -> Fragment:
    """Debug builds, failed runs, what was excluded, an A/A test that failed, warnings of primary contrasts, limits."""
    local = data.plan.study.backend == "local"
    limits = [REFERENCE_NOTE, _ONE_MACHINE] if local else [_THIS_CLUSTER]
    called = bool(twin_called(data))
    gone, debug = excluded(data), _debug_builds(data)
    said = [
        *debug,
        *(twin_sentences(data) if called else []),
        *gone,
        *course_of_runs(data),
        *wording.warnings(frames.contrasts(data, primary=True, family="").rows),
        *limits,
    ]
    alarm = called or bool(gone) or bool(debug)
    return join(heading("What could be wrong"), box(bullets(said), alarm=alarm))


def _debug_builds(data: StudyData) -> list[str]:
    return [
        f"{program} is no release, by its own word ({word}), in {wording.listing(treatments)}: such a build may cost "
        "several times what a release does. Measure a release; these figures say nothing of one."
        for (program, word), treatments in builds.not_released(data.runs).items()
    ]


def method_and_limits(data: StudyData) -> Fragment:
    """Method and limits in prose, every figure of it from the plan."""
    holds = "order, test, interval, margin, percentiles"
    return join(
        fold("How the verdicts were reached", holds, prose(bullets(_method(data)))),
        fold("Limits", "what the verdicts do not say", prose(bullets(_limits(data)))),
    )


def _method(data: StudyData) -> list[str]:
    study = data.plan.study
    load, kind = study.loads[0], "size of one deployment" if study.order == "growing" else "fresh deployment"
    order = {
        "randomised": "Each block is one pass over all treatments in a random order of its own",
        "ascending": "Each block is one pass over all treatments; the loads were run in ascending order, so that "
        "drift of the machine can look like load",
        "growing": "Each block is one pass over all treatments in a random order of its own; a treatment's deployment "
        "was kept and grew from size to size, so that time since its start and drift of the cluster can look like size",
        "sequential": "The treatments ran in one fixed order: a negative control, in which drift looks like an effect",
    }[study.order]
    lines = [
        f"{order}. A run is a {kind} of client, server and proxies, warmed up for "
        f"{wording.duration(load.warmup_s)} and then measured. The run is the unit: thousands of requests inside it do "
        "not make it more than one.",
        f"Within each block a treatment is compared with {_bases(study)}: by the logarithm of the ratio, or by "
        "the difference where the plan says so or a value is not positive. Test: exact Wilcoxon signed-rank. Estimate: "
        "Hodges-Lehmann. The interval is inverted from the same test and never disagrees with its p before that is "
        "corrected; the confidence it achieves stands beside it.",
        f"A difference is called where the corrected p is at most {wording.plain(study.alpha)}; equivalence where two "
        "one-sided tests at that level put the effect inside the margin that the plan declared. Where neither is shown "
        "the verdict is inconclusive, with the number of blocks of a new study that would probably settle it.",
        "Percentiles are exact, from every request of a run, and then compared over runs: the typical run's. Pooled "
        "percentiles put the requests of all runs together first; they appear beside the distribution only.",
        "Latency is given from the actual send and from the scheduled send. The second one also counts what requests "
        "waited for because earlier ones were late (coordinated omission).",
    ]
    if any(not load.catchup for load in study.loads):
        lines.append("Overdue sends were skipped; the latency from the schedule estimates what they would have waited.")
    return lines


def _bases(study: Study) -> str:
    return (
        wording.listing(list(dict.fromkeys(contrast.baseline for contrast in study.all_contrasts()))) or "the baseline"
    )


def _limits(data: StudyData) -> list[str]:
    study = data.plan.study
    lines = []
    if study.backend == "local":
        lines += [
            REFERENCE_NOTE,
            "Everything runs on one machine over loopback: there is no network between client and server, and load "
            "generator, proxies and app share the same cores. Added milliseconds hold for such a machine; on a cluster "
            "the same share of a longer path is another number.",
        ]
    else:
        lines.append(_THIS_CLUSTER)
    rates = wording.listing([load.label for load in study.loads])
    lines.append(
        f"The verdicts hold for the loads that were measured ({rates}); latency at another rate is another question."
    )
    absent = _absent(data)
    if absent:
        lines.append(
            f"Not reported: {wording.listing(absent)}. A percentile is given only where "
            f"{study.gates.sample_floor:g} requests of every run lie beyond it; run longer or faster to get it."
        )
    lines += [
        "Inconclusive says that this study cannot tell. Equivalent says that the effect lies within the margin, "
        "which is a choice of the plan and not a law of nature.",
        "Exploratory rows were not the question of this study: treat them as hints.",
    ]
    return lines


def _absent(data: StudyData) -> list[str]:
    recorded = set(data.table.filter(data.table["included"])["response"].to_list())
    if not recorded:
        return []
    return [marked.label for marked in MARKED if f"latency_{marked.key}_s" not in recorded]
