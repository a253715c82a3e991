"""Load: fortio's command lines, its results, and the numbers by which a run is judged.

Data flows one way: ``fortio`` (arguments) -> ``files``, ``result``, ``accesslog`` (readers) -> ``schedule``,
``histogram``, ``quantiles`` (arithmetic) -> ``ingest`` (a :class:`~meshtrial.load.ingest.Measurement`) -> ``gates``.
Results from elsewhere enter through ``recorded``.
"""
