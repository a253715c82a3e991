"""Failed requests by kind: an answer with an error status, a time-out, a connection that was refused or broke.

fortio gives every request without an answer the code -1 and explains it only in its log, one line per request. So the
measured call logs errors unless there could be too many. The k-th log line of a thread belongs to the k-th such request
of that thread. If the numbers do not match, or nothing was logged, the kind follows from the latency, or is
``no answer``.

If a kept-alive connection breaks or stays silent, fortio silently opens another and sends the request again. Only the
latency shows this: an answer later than the client's time-out is a ``time-out`` here, although fortio counts it as
good. A connection that broke at once is not a failed request; ``reconnects`` counts it.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping

import polars as pl

TIME_OUT, REFUSED, RESET, NO_ANSWER = "time-out", "refused", "reset", "no answer"
DISORDER = "out of order"  # a stream delivered an event out of sequence
SOCKET_ERROR = "-1"
# The most requests for which failures are logged: at 250 bytes per line, 25 MB if all of them fail.
MOST_LOGGED = 100_000
_KINDS = (
    (re.compile(DISORDER), DISORDER),
    (re.compile(r"connection refused"), REFUSED),
    (re.compile(r"time-?out|deadline ?exceeded", re.IGNORECASE), TIME_OUT),
    (re.compile(r"reset by peer|broken pipe|EOF|short read|use of closed|closing|connection error", re.I), RESET),
)
_GRPC = re.compile(r"code = (\w+)")


def kind_of(text: str) -> str:
    """Return the kind of an error by its text: one of the constants above, or gRPC's own name for it."""
    for pattern, kind in _KINDS:
        if pattern.search(text):
            return kind
    grpc_code = _GRPC.search(text)
    return grpc_code[1] if grpc_code else NO_ANSWER


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
    logged = _logged(text)
    kinds: dict[int, str] = {}
    for (thread,), rows in unclear.group_by("thread", maintain_order=True):
        lines = logged.get(int(str(thread)), [])
        unanswered = rows.filter(pl.col("code") == SOCKET_ERROR)
        # Each thread first makes one call that is not counted, and that may have failed and been logged too.
        matches = len(lines) - unanswered.height in (0, 1)
        texts = lines[-unanswered.height :] if matches else [""] * unanswered.height
        kinds |= dict(zip(unanswered["row"].to_list(), map(kind_of, texts), strict=True))
        kinds |= {row: kind_of(code) for row, code in rows.filter(pl.col("code") != SOCKET_ERROR)["row", "code"].rows()}
    kind = pl.col("row").replace_strict(kinds, default=None, return_dtype=pl.String)
    silent = (kind == NO_ANSWER) & (pl.col("latency_s") >= 0.99 * timeout_s)
    code = pl.coalesce(pl.when(silent).then(pl.lit(TIME_OUT)).otherwise(kind), pl.col("code").cast(pl.String))
    return log.with_row_index("row").with_columns(code.cast(log.schema["code"]).alias("code")).drop("row")


def count(requests: pl.DataFrame) -> dict[str, int]:
    """Return failed requests by kind, the most frequent first."""
    failed = requests.filter(~pl.col("ok").fill_null(True))["code"]
    return dict(sorted(Counter(failed.to_list()).items(), key=lambda item: (-item[1], item[0])))


def in_words(counts: Mapping[str, int]) -> str:
    """Format counts as ``503: 12, time-out: 3``."""
    return ", ".join(f"{kind}: {number}" for kind, number in counts.items())


def _logged(text: str) -> dict[int, list[str]]:
    """Return the errors that fortio logged, by thread, in order of time."""
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
    return {thread: [error for _, error in sorted(lines, key=lambda line: line[0])] for thread, lines in errors.items()}
