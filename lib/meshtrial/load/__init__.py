"""Load: fortio's command lines, what came back of them, and the numbers a run is judged by.

One direction: ``fortio`` (arguments) -> ``files``, ``result``, ``accesslog`` (readers) -> ``schedule``,
``histogram``, ``quantiles``, ``merge`` (arithmetic) -> ``ingest`` (a :class:`~meshtrial.load.ingest.Measurement`)
-> ``gates``. Files that somebody already has enter through ``recorded``.
"""
