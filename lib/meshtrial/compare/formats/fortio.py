"""fortio's result and its access log, and Nighthawk's fortio export, which `load` reads."""

from meshtrial.compare.formats.source import Format, Source, beginning, holding
from meshtrial.load.files import InputFileError
from meshtrial.load.recorded import Recorded, read_recorded


def _read(source: Source, sample_floor: float) -> Recorded:
    try:
        return read_recorded(source.path, sample_floor)
    except (AttributeError, TypeError) as error:
        # JSON of the right names and the wrong shapes: somebody else's file, or one that was edited.
        reason = f"is not a whole fortio result: a field has another shape ({error})"
        raise InputFileError(source.path, reason) from error


LOG = Format("fortio access log", beginning(r'latency,|\{"latency"'), _read, stream=True)
RESULT = Format("fortio result", holding("DurationHistogram"), _read)
