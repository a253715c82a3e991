"""How many blocks a margin needs on this machine, from a study that was recorded on it."""
