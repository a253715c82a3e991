"""One verb a module: each has ``add(subparsers)`` and ``run(arguments, out) -> exit code``."""
