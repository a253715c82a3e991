"""One verb a module: each has ``add(subparsers)`` and ``run(arguments, out) -> exit code``.

`gating` is no verb: the options that three of them share.
"""
