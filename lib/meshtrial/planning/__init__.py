"""How many blocks a margin costs on this machine, from a study that was recorded on it."""
