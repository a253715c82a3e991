"""One command per module: ``run(arguments, out)`` returns the exit code, and ``add(command)`` declares the options.

``EXAMPLES`` is the end of a command's help. `gating` and `limits` are shared by several commands.
"""
