"""Every fault of a model, or of what acts and learns with it, that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

CANNOT_RUN = Fault(
    "cannot-run",
    _ERROR,
    "What the configuration names cannot be made, or does not go together: `surreal run` would refuse it.",
    "the sentence names the change",
)
ACTING_FAILS = Fault(
    "acting-fails",
    _ERROR,
    "The agent or its model raises while it acts, or gives actions that the environment does not take.",
    "the sentence names the class and the line",
)
NOT_FINITE = Fault(
    "model-not-finite",
    _ERROR,
    "The model computes NaN or infinity from observations that are finite.",
    "look at the part that is named: a logarithm or root without a bound, a division, or parameters that begin broken",
)
NO_BATCH = Fault(
    "no-batch",
    _HINT,
    "The rehearsal did not fill a single batch in its time, so learning was not tried.",
    "without --quick it has more time; else the environment is slow, or learner.batch_size large",
)
LEARNING_FAILS = Fault(
    "learning-fails",
    _ERROR,
    "An update raises.",
    "the sentence names the line; see whether learner.class and model.class fit: docs/algorithms.md",
)
LOSS_NOT_FINITE = Fault(
    "loss-not-finite",
    _ERROR,
    "Loss or gradients of the first updates are NaN or infinite, so such updates are skipped.",
    "lower initial_learning_rate, scale rewards and observations, or see what the model computes",
)
NOTHING_MOVES = Fault(
    "nothing-learns",
    _ERROR,
    "Updates change no parameter at all.",
    "see whether the learning rate is 0, and whether the output of the model still hangs on its parameters "
    "(no .detach(), no torch.no_grad() in forward)",
)
DEAD_PARAMETERS = Fault(
    "dead-parameters",
    _WARNING,
    "Some parameters get no gradient: the loss does not depend on them.",
    "use them in forward, or remove them; a .detach() too early, or a layer that no output comes from, is the cause",
)
IGNORES_OBS = Fault(
    "model-ignores-obs",
    _WARNING,
    "The model gives the same output for observations that differ.",
    "see what forward does with obs; units that are all dead (relu of large negative numbers) do this too: scale obs",
)
TOO_LARGE = Fault(
    "parameters-too-large",
    _WARNING,
    "Parameters do not fit three times next to the experience into Redis' memory, as a publication needs for a moment.",
    "raise redis.maxmemory, lower replay.max_bytes, or give parameters their own server: redis.parameter_address",
)
