"""A file's bytes, gzip or plain; what unpacks without an end is not waited for."""

import gzip

from refused import refused

from meshtrial.load.files import InputFileError, read_bytes


def test_gzip_that_unpacks_without_an_end_is_refused_and_what_shrinks_as_logs_do_is_read(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(bytes(2**26 + 1)))
    with refused(InputFileError, names=[path, 2**26]):
        read_bytes(path)
    data = b'{"latency":0.001}\n' * 1000
    path.write_bytes(gzip.compress(data))
    assert read_bytes(path) == data
