"""Failed requests by kind: what the path answered, what did not answer in time, what could not be reached.

fortio gives every request without an answer the code -1. Why stands in its log alone, one line per request, so the
measured call logs errors wherever so many lines can be kept; the k-th line of a thread is the k-th such request of
that thread. Where the two do not match, or nothing was logged, a request is what its latency says, or ``no answer``.

A kept connection that breaks or stays silent is opened again by fortio, and the request sent a second time, in
silence. Of that the latency tells: an answer later than the client's time-out is a ``time-out`` here, although fortio
counts it as good. A connection that broke at once is not a failed request; ``reconnects`` counts it.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping

import polars as pl

TIME_OUT, REFUSED, RESET, NO_ANSWER = "time-out", "refused", "reset", "no answer"
SOCKET_ERROR = "-1"
# Requests that a run may plan for its failures to be logged: at 250 bytes a line 25 MB, if all of them fail.
MOST_LOGGED = 100_000
_KINDS = (
    (re.compile(r"connection refused"), REFUSED),
    (re.compile(r"time-?out|deadline ?exceeded", re.IGNORECASE), TIME_OUT),
    (re.compile(r"reset by peer|broken pipe|EOF|short read|use of closed|closing|connection error", re.I), RESET),
)
_GRPC = re.compile(r"code = (\w+)")


def kind_of(said: str) -> str:
    """What an error's text speaks of: one of the words above, or gRPC's own name for it."""
    for pattern, kind in _KINDS:
        if pattern.search(said):
            return kind
    named = _GRPC.search(said)
    return named[1] if named else NO_ANSWER


def explained(log: pl.DataFrame, text: str, timeout_s: float) -> pl.DataFrame:
    """An access log whose failed requests have a kind for their code, and whose late answers failed.

    ``log`` is in the order of :func:`meshtrial.load.accesslog.read_access_log`, ``text`` what the generator said. In
    the same rows ``code`` is then an HTTP status, gRPC's ``SERVING``, or the kind of a failure; nothing is ``-1``.
    """
    late = pl.col("latency_s") >= timeout_s
    if log.select((late & pl.col("ok")).any()).item():
        code = pl.when(late & pl.col("ok")).then(pl.lit(TIME_OUT)).otherwise(pl.col("code").cast(pl.String))
        log = log.with_columns(code.cast(log.schema["code"]).alias("code"), pl.col("ok") & ~late)
    failed = log.with_row_index("row").filter(~pl.col("ok")).with_columns(pl.col("code").cast(pl.String))
    unclear = failed.filter(~pl.col("code").str.contains(r"^\d{3}$"))
    if unclear.is_empty():
        return log
    said = _logged(text)
    kinds: dict[int, str] = {}
    for (thread,), rows in unclear.group_by("thread", maintain_order=True):
        lines = said.get(int(str(thread)), [])
        own = rows.filter(pl.col("code") == SOCKET_ERROR)
        # Before the first request each thread makes one call that is not counted, and that may have failed too.
        matched = lines[-own.height :] if len(lines) - own.height in (0, 1) else [""] * own.height
        kinds |= dict(zip(own["row"].to_list(), map(kind_of, matched), strict=True))
        kinds |= {row: kind_of(code) for row, code in rows.filter(pl.col("code") != SOCKET_ERROR)["row", "code"].rows()}
    by_row = pl.DataFrame(
        {"row": list(kinds), "kind": list(kinds.values())}, schema={"row": pl.UInt32, "kind": pl.String}
    )
    silent = (pl.col("kind") == NO_ANSWER) & (pl.col("latency_s") >= 0.99 * timeout_s)
    kind = pl.when(silent).then(pl.lit(TIME_OUT)).otherwise("kind")
    return (
        log.with_row_index("row")
        .join(by_row, on="row", how="left", maintain_order="left")
        .with_columns(pl.coalesce(kind, pl.col("code").cast(pl.String)).cast(log.schema["code"]).alias("code"))
        .drop("row", "kind")
    )


def count(requests: pl.DataFrame) -> dict[str, int]:
    """Failed requests by kind, the most frequent first."""
    failed = requests.filter(~pl.col("ok").fill_null(True))["code"]
    return dict(sorted(Counter(failed.to_list()).items(), key=lambda item: (-item[1], item[0])))


def in_words(counts: Mapping[str, int]) -> str:
    """``503: 12, time-out: 3``."""
    return ", ".join(f"{kind}: {number}" for kind, number in counts.items())


def _logged(text: str) -> dict[int, list[str]]:
    """The errors that fortio logged, by thread, in the order in which they happened."""
    errors: dict[int, list[tuple[float, str]]] = {}
    for line in text.splitlines():
        if not line.startswith("{") or '"thread"' not in line:
            continue
        try:
            item = json.loads(line)
            thread, moment = int(item["thread"]), float(item["ts"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if item.get("level") == "err":
            errors.setdefault(thread, []).append((moment, f"{item.get('msg', '')}: {item.get('err', '')}"))
    return {thread: [said for _, said in sorted(lines, key=lambda line: line[0])] for thread, lines in errors.items()}
