"""Every fault of an environment that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

NOT_MADE = Fault(
    "env-not-made",
    _ERROR,
    "The environment, a wrapper, or its package does not exist, or refuses its arguments.",
    "fix env.id, env.kwargs or env.wrappers, or install the named extra",
)
RAISES = Fault(
    "env-raises",
    _ERROR,
    "`reset` or `step` raised an exception, or did not return the values that gymnasium requires.",
    "fix the environment; if it fails rarely and cannot be fixed, use env.on_error: restart",
)
NOT_FITTING = Fault(
    "obs-does-not-fit",
    _ERROR,
    "Observations differ from the observation space in shape, nesting or kind of numbers.",
    "make observation_space match the observations of reset and step",
)
OUTSIDE = Fault(
    "obs-outside-space",
    _WARNING,
    "At least one observation in a hundred is outside of the bounds of its space.",
    "widen the bounds of observation_space, or clip the observations",
)
SELDOM_OUTSIDE = Fault(
    "obs-outside-space-seldom",
    _HINT,
    "A few observations are outside of the bounds of their space. They are used unchanged.",
    "widen the bounds of observation_space",
)
DTYPE = Fault(
    "obs-of-other-dtype",
    _HINT,
    "Observations have another dtype than their space; they are converted to it in each step.",
    "return arrays of the space's dtype, or give the space the dtype of the arrays",
)
CHANGING_DTYPE = Fault(
    "obs-changes-dtype",
    _WARNING,
    "The dtype of observations changes between steps, for example from integers to fractions.",
    "return the same dtype from reset and from step: np.asarray(obs, self.observation_space.dtype)",
)
UNSOUND = Fault(
    "obs-not-finite",
    _ERROR,
    "An observation contains a number that is not finite, or above 1e18. Agents cut such episodes.",
    "fix the environment; the usual cause is a division by zero or a root of a negative number",
)
REUSED = Fault(
    "obs-reused",
    _HINT,
    "The environment returns the same array in each step, and writes into it.",
    "return obs.copy(); `surreal run` copies it, but your own loop would send overwritten data",
)
LARGE_OBS = Fault(
    "obs-large",
    _HINT,
    "Observations contain numbers above 1,000, from which networks learn badly.",
    "scale them: the wrapper obs_scale or obs_clip, or model.args.normalize_obs if the model has it",
)
CONSTANT_OBS = Fault(
    "obs-constant",
    _HINT,
    "All observations of several steps are the same, so nothing can be learned from them.",
    "correct for a bandit; otherwise check that step returns the new state",
)
REWARD_UNSOUND = Fault(
    "reward-not-finite",
    _ERROR,
    "A reward is NaN, infinite, above 1e18, or not a number. Agents cut such episodes.",
    "fix the environment",
)
LARGE_REWARD = Fault(
    "reward-large",
    _HINT,
    "Absolute rewards are above 1,000; value losses grow with their square.",
    "scale them: env.wrappers: [{name: reward_scale, args: {scale: 0.001}}], or reward_clip",
)
NO_REWARD = Fault(
    "reward-always-zero",
    _HINT,
    "Random actions received no reward other than 0.",
    "if this continues, explore more, or reward steps toward the goal",
)
MASK_EMPTY = Fault(
    "mask-without-action",
    _ERROR,
    'info["action_mask"] allows no action, so an agent has no choice.',
    "allow at least one action in each state that is not terminal",
)
MASK_SHAPE = Fault(
    "mask-of-other-shape",
    _ERROR,
    'info["action_mask"] does not have one entry for each discrete action.',
    "return one boolean for each action; for MultiDiscrete, those of all parts in a row",
)
MASK_MISSING = Fault(
    "mask-missing",
    _WARNING,
    'info["action_mask"] is missing in some steps, in which all actions count as legal.',
    "return it in the info of reset and of each step",
)
TIME_LIMIT = Fault(
    "time-limit-terminated",
    _WARNING,
    "Every episode of random actions is `terminated` at the same step, like a time limit that is reported as a "
    "terminal state. Learners would give the state after it the value 0.",
    "return truncated=True at a time limit, or let gymnasium apply it: register with max_episode_steps",
)
BOTH_ENDS = Fault(
    "terminated-and-truncated",
    _HINT,
    "Episodes end with terminated and truncated both true; terminated counts.",
    "return truncated=True only if the state is not terminal",
)
NO_END = Fault(
    "episode-without-end",
    _HINT,
    "No episode ended during the check, so perhaps none ever ends.",
    "add a time limit: env.wrappers: [{name: time_limit, args: {max_episode_steps: 1000}}]; evaluation has "
    "eval.max_episode_steps",
)
SLOW_STEP = Fault(
    "env-slow",
    _HINT,
    "The environment makes less than 50 steps per second.",
    "env.pool: subproc steps several at once, one per core; or use more agents, also on other machines",
)
SLOW_RESET = Fault(
    "reset-slow",
    _WARNING,
    "`reset` takes most of the time of an episode, and all environments of an agent wait for it.",
    "keep the objects that reset builds between episodes; with env.pool: subproc the others continue",
)
LEAK = Fault(
    "env-leaks",
    _WARNING,
    "The memory of the process grows with each episode.",
    "look for lists or caches to which reset or step appends",
)
NOT_SEEDABLE = Fault(
    "env-not-seedable",
    _WARNING,
    "The same seed and the same actions produce a different episode.",
    "call super().reset(seed=seed), and draw all random numbers from self.np_random",
)
CHECKER = Fault(
    "gymnasium-checker",
    _HINT,
    "gymnasium's checker has a remark.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
CHECKER_FAILS = Fault(
    "gymnasium-checker-fails",
    _WARNING,
    "gymnasium's checker refuses the environment, because it violates the interface.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
