"""`surreal health ROLE`: judge a process of this machine or container by its health file.

`surreal.base.system.health` writes that file. Kubernetes runs this every few seconds in every container, so it
imports only a little of Python's library and sends no requests.
"""

from __future__ import annotations

import json
import os
import sys
import time

#: Environment variable with the path of the file; without it, a process writes none.
HEALTH_VARIABLE = "SURREAL_HEALTH"
#: Age from which a file counts as stale, s; it is written every two seconds.
STALE_S = 20.0

#: Phases of a process.
STARTING, WORKING, ENDING, OVER = "starting", "working", "ending", "over"

STARTUP, LIVENESS, READINESS = PROBES = ("startup", "liveness", "readiness")

_USAGE = f"usage: surreal health [ROLE] [--probe {{{','.join(PROBES)}}}] [--file FILE]"
_HELP = f"""{_USAGE}

Report a local process's health: one line, and exit code 0 if it is healthy, 1 if not.

  ROLE          agent, learner, ps, eval, rlx-server or redis; default: any role
  --probe NAME  startup: it has begun to work, or reports what it waits for;
                liveness: it is not stopped, and none of its loops hangs;
                readiness: it works and waits for nothing, or its run has ended; the default
  --file FILE   health file; default: ${HEALTH_VARIABLE}, which the process must have too
"""


def main(argv: list[str]) -> int:
    """Probe a process; returns the exit code: 0 healthy, 1 not healthy, 2 wrong arguments."""
    if {"-h", "--help"} & {*argv}:
        sys.stdout.write(_HELP)
        return 0
    options = {"--probe": READINESS, "--file": os.environ.get(HEALTH_VARIABLE, "")}
    role, problem = "", ""
    words = iter(argv)
    for word in words:
        name, equals, value = word.partition("=")
        if name in options:
            options[name] = value if equals else next(words, "")
        elif word.startswith("-") or role:
            problem = f"{word!r} is not expected"
        else:
            role = word
    if options["--probe"] not in PROBES:
        problem = f"--probe is {options['--probe']!r}; it must be one of {', '.join(PROBES)}"
    elif not options["--file"]:
        problem = f"no file: set ${HEALTH_VARIABLE} for the process and for this command, or give --file"
    if problem:
        sys.stderr.write(f"{_USAGE}\nerror: {problem}\n")
        return 2
    is_well, sentence = probe(options["--file"], role, options["--probe"])
    sys.stdout.write(f"{sentence}\n")
    return 0 if is_well else 1


def probe(path: str, role: str, name: str) -> tuple[bool, str]:
    """Judge a process by its file."""
    try:
        with open(path, "rb") as file:
            state = json.loads(file.read(1 << 16))
        found, pid, birth = str(state["role"]), int(state["pid"]), str(state["birth"])
        phase, at_s = str(state["phase"]), float(state["at_s"])
        hangs, waits = str(state["hangs_in"]), [str(wait) for wait in state["waits_for"]]
    except FileNotFoundError:
        return False, f"it has not begun: there is no {path}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return False, f"{path} cannot be read: {type(error).__name__}: {error}"
    if role and found != role:
        return False, f"{path} belongs to a process with the role {found}"
    if birth != birth_of(pid):
        return False, f"process {pid}, which wrote {path}, has ended"
    age_s = time.monotonic() - at_s
    if age_s > STALE_S:
        return False, f"process {pid} has written no heartbeat for {age_s:.0f} s"
    if hangs and phase == WORKING:  # other limits apply to starting and draining
        return name == STARTUP, hangs
    doing = waits[0] if waits else phase
    if name == STARTUP:
        return phase != STARTING or bool(waits), doing
    return name == LIVENESS or phase == OVER or (phase == WORKING and not waits), doing


def birth_of(pid: int) -> str:
    """Return when a process began, in clock ticks since the boot, which identifies it; "" if that is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
