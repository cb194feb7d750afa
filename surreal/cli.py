"""The `surreal` command.

What a person asked for goes to stdout, an error to stderr as one line `error: ...`. The exit code is 0 if it worked,
1 if not, 2 for wrong arguments. `--debug`, anywhere, shows tracebacks.

Heavy imports (torch) happen inside the commands that need them.
"""

from __future__ import annotations
