"""Every fault of an environment that the doctor knows."""

from surreal.plugins.doctor.frame.finding import error, hint, warning

NOT_MADE = error(
    "env-not-made",
    "The environment, a wrapper, or its package does not exist, or refuses its arguments.",
    "fix env.id, env.kwargs or env.wrappers, or install the named extra",
)
RAISES = error(
    "env-raises",
    "`reset` or `step` raised an exception, or did not return the values that gymnasium requires.",
    "fix the environment; if it fails rarely and cannot be fixed, use env.on_error: restart",
)
NOT_FITTING = error(
    "obs-does-not-fit",
    "Observations differ from the observation space in shape, nesting or kind of numbers.",
    "make observation_space match the observations of reset and step",
)
OUTSIDE = warning(
    "obs-outside-space",
    "At least one observation in a hundred is outside of the bounds of its space.",
    "widen the bounds of observation_space, or clip the observations",
)
SELDOM_OUTSIDE = hint(
    "obs-outside-space-seldom",
    "A few observations are outside of the bounds of their space. They are used unchanged.",
    "widen the bounds of observation_space",
)
DTYPE = hint(
    "obs-of-other-dtype",
    "Observations have another dtype than their space; they are converted to it in each step.",
    "return arrays of the space's dtype, or give the space the dtype of the arrays",
)
CHANGING_DTYPE = warning(
    "obs-changes-dtype",
    "The dtype of observations changes between steps, for example from integers to fractions.",
    "return the same dtype from reset and from step: np.asarray(obs, self.observation_space.dtype)",
)
UNSOUND = error(
    "obs-not-finite",
    "An observation contains a number that is not finite, or above 1e18. Agents cut such episodes.",
    "fix the environment; the usual cause is a division by zero or a root of a negative number",
)
REUSED = hint(
    "obs-reused",
    "The environment returns the same array in each step, and writes into it.",
    "return obs.copy(); `surreal run` copies it, but your own loop would send overwritten data",
)
LARGE_OBS = hint(
    "obs-large",
    "Observations contain numbers above 1,000, from which networks learn badly.",
    "scale them: the wrapper obs_scale or obs_clip, or model.args.normalize_obs if the model has it",
)
CONSTANT_OBS = hint(
    "obs-constant",
    "All observations of several steps are the same, so nothing can be learned from them.",
    "correct for a bandit; otherwise check that step returns the new state",
)
REWARD_UNSOUND = error(
    "reward-not-finite",
    "A reward is NaN, infinite, above 1e18, or not a number. Agents cut such episodes.",
    "fix the environment",
)
LARGE_REWARD = hint(
    "reward-large",
    "Absolute rewards are above 1,000; value losses grow with their square.",
    "scale them: env.wrappers: [{name: reward_scale, args: {scale: 0.001}}], or reward_clip",
)
NO_REWARD = hint(
    "reward-always-zero",
    "Random actions received no reward other than 0.",
    "if this continues, explore more, or reward steps toward the goal",
)
SAME_RETURN = hint(
    "return-always-same",
    "All episodes of random actions have the same return.",
    "if this continues, nothing can be learned: reward what actions change",
)
MASK_EMPTY = error(
    "mask-without-action",
    'info["action_mask"] allows no action, so an agent has no choice.',
    "allow at least one action in each state that is not terminal",
)
MASK_SHAPE = error(
    "mask-of-other-shape",
    'info["action_mask"] does not have one entry for each discrete action.',
    "return one boolean for each action; for MultiDiscrete, those of all parts in a row",
)
MASK_MISSING = warning(
    "mask-missing",
    'info["action_mask"] is missing in some steps, in which all actions count as legal.',
    "return it in the info of reset and of each step",
)
TIME_LIMIT = warning(
    "time-limit-terminated",
    "Every episode of random actions is `terminated` at the same step, like a time limit that is reported as a "
    "terminal state. Learners would give the state after it the value 0.",
    "return truncated=True at a time limit, or let gymnasium apply it: register with max_episode_steps",
)
BOTH_ENDS = hint(
    "terminated-and-truncated",
    "Episodes end with terminated and truncated both true; terminated counts.",
    "return truncated=True only if the state is not terminal",
)
NO_END = hint(
    "episode-without-end",
    "No episode ended during the check, so perhaps none ever ends.",
    "add a time limit: env.wrappers: [{name: time_limit, args: {max_episode_steps: 1000}}]; evaluation has "
    "eval.max_episode_steps",
)
SLOW_STEP = hint(
    "env-slow",
    "The environment makes less than 50 steps per second.",
    "env.pool: subproc steps several at once, one per core; or use more agents, also on other machines",
)
SLOW_RESET = warning(
    "reset-slow",
    "`reset` takes most of the time of an episode, and all environments of an agent wait for it.",
    "keep the objects that reset builds between episodes; with env.pool: subproc the others continue",
)
LEAK = warning(
    "env-leaks",
    "The memory of the process grows with each episode.",
    "look for lists or caches to which reset or step appends",
)
NOT_SEEDABLE = warning(
    "env-not-seedable",
    "The same seed and the same actions produce a different episode.",
    "call super().reset(seed=seed), and draw all random numbers from self.np_random",
)
CHECKER = hint(
    "gymnasium-checker",
    "gymnasium's checker has a remark.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
CHECKER_FAILS = warning(
    "gymnasium-checker-fails",
    "gymnasium's checker refuses the environment, because it violates the interface.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
