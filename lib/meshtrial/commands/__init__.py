"""One verb a module: each has ``run(arguments, out) -> exit code``, and ``add(command)`` where it has options.

`gating` is no verb: the options that three of them share.
"""
