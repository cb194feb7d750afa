"""Every claim of speed, compared with a peer or a limit in the same run: `python -m benchmarks.transport`."""

import os

# pip has compiled the packages of peers; where bytecode is not kept, each process would compile Surreal again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
