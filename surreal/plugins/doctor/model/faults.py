"""Every fault of a model, its agent or its learner that the doctor knows."""

from surreal.plugins.doctor.frame.finding import error, hint, warning

CANNOT_RUN = error(
    "cannot-run",
    "Parts of the configuration cannot be made, or do not fit together: `surreal run` would refuse it.",
    "the sentence names the change",
)
ACTING_FAILS = error(
    "acting-fails",
    "The agent or its model raises while it acts, or returns actions that the environment does not accept.",
    "the sentence names the class and the line",
)
NOT_FINITE = error(
    "model-not-finite",
    "The model computes NaN or infinity from finite observations.",
    "check the named part: a logarithm or root without a bound, a division, or broken initial parameters",
)
NO_BATCH = hint(
    "no-batch",
    "The rehearsal did not fill one batch in its time, so learning was not tried.",
    "leave out --quick for more time; otherwise the environment is slow, or learner.batch_size is large",
)
LEARNING_FAILS = error(
    "learning-fails",
    "An update raises.",
    "the sentence names the line; check that learner.class and model.class fit: docs/algorithms/README.md",
)
LOSS_NOT_FINITE = error(
    "loss-not-finite",
    "Losses or gradients of the first updates are NaN or infinite, so these updates are skipped.",
    "lower initial_learning_rate, scale rewards and observations, or check the model's computation",
)
NOTHING_MOVES = error(
    "nothing-learns",
    "Updates do not change any parameter.",
    "check whether the learning rate is 0, and whether the model's output depends on its parameters "
    "(no .detach(), no torch.no_grad() in forward)",
)
HARDLY_MOVES = warning(
    "hardly-learns",
    "Updates hardly change the parameters.",
    "raise initial_learning_rate: most presets have 3e-4 to 3e-3",
)
DEAD_PARAMETERS = warning(
    "dead-parameters",
    "Some parameters get no gradient: the loss does not depend on them.",
    "use them in forward, or remove them; the cause is an early .detach(), or a layer without effect on the output",
)
IGNORES_OBS = warning(
    "model-ignores-obs",
    "The model returns the same output for different observations.",
    "check how forward uses obs; it may also have only dead units (relu of large negative numbers): scale obs",
)
TOO_LARGE = warning(
    "parameters-too-large",
    "Redis' memory does not fit the experience and three copies of the parameters, which a publication needs briefly.",
    "raise redis.maxmemory, lower replay.max_bytes, or give parameters their own server: redis.parameter_address",
)
