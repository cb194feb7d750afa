"""Faults of checks themselves: of whatever they look at, no more can be said."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

FAILED = Fault(
    "check-failed",
    Severity.ERROR,
    "A check ended with an error of its own, so what it looks at is not as it should be, or not known.",
    "the sentence says what was raised, and where",
)
HANGS = Fault(
    "check-hangs",
    Severity.ERROR,
    "A check did not end in its time: what it looks at (an environment, a model, a file system) hangs.",
    "look at the call that is named; an environment needs a timeout of its own where it waits for something",
)
DIED = Fault(
    "check-died",
    Severity.ERROR,
    "The process in which environment and model are tried ended in the middle of a check.",
    "env.pool: subproc keeps an environment that crashes away from the agent, env.on_error: restart makes it anew",
)
NOT_DONE = Fault(
    "check-not-done",
    Severity.HINT,
    "Checks were left out, because one before them failed.",
    "mend what is said above, and ask again",
)
