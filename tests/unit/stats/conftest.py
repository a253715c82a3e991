"""Property tests: the same examples every time, and no deadline on a busy machine."""

from hypothesis import settings

settings.register_profile("stats", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("stats")
