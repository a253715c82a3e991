"""How the verdicts were reached and what they do not say: every figure of it from the plan."""

from __future__ import annotations

from meshtrial.design.study import Study
from meshtrial.records.dataset import StudyData
from meshtrial.report import wording
from meshtrial.report.limits import limits
from meshtrial.report.markup import Fragment, bullets, fold, join


def method_and_limits(data: StudyData) -> Fragment:
    """Method and limits in prose, every figure of it from the plan."""
    holds = "order, test, interval, margin, percentiles"
    return join(
        fold("How the verdicts were reached", holds, Fragment("prose", bullets(_method(data)))),
        fold("Limits", "what the verdicts do not say", Fragment("prose", bullets(limits(data).details))),
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
