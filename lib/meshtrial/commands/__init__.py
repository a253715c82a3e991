"""One command per module: ``run(arguments, out)`` returns the exit code; ``add(command)`` declares the options.

`gating` and `limits` are shared by several commands.
"""
