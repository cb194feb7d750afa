"""Every fault of an environment that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

NOT_MADE = Fault(
    "env-not-made",
    _ERROR,
    "The environment, a wrapper, or its package does not exist, or refuses its arguments.",
    "mend env.id, env.kwargs or env.wrappers, or install the extra that is named",
)
RAISES = Fault(
    "env-raises",
    _ERROR,
    "`reset` or `step` raised an exception, or gave something else than gymnasium's values.",
    "mend the environment; if it fails now and then and cannot be mended: env.on_error: restart",
)
NOT_FITTING = Fault(
    "obs-does-not-fit",
    _ERROR,
    "Observations have another shape, nesting or kind of numbers than the observation space says.",
    "make observation_space describe what reset and step return",
)
OUTSIDE = Fault(
    "obs-outside-space",
    _WARNING,
    "One observation in a hundred, or more, lies outside of the bounds of its space.",
    "widen the bounds of observation_space, or clip what is returned",
)
SELDOM_OUTSIDE = Fault(
    "obs-outside-space-seldom",
    _HINT,
    "A few observations lie outside of the bounds of their space. They are used unchanged.",
    "widen the bounds of observation_space",
)
DTYPE = Fault(
    "obs-of-other-dtype",
    _HINT,
    "Observations have another dtype than their space; they are converted to it in each step.",
    "return arrays of the space's dtype, or let the space have the dtype of the arrays",
)
CHANGING_DTYPE = Fault(
    "obs-changes-dtype",
    _WARNING,
    "Observations have now one dtype and now another, or whole numbers stand where fractions come later.",
    "return the same dtype from reset and from step: np.asarray(obs, self.observation_space.dtype)",
)
UNSOUND = Fault(
    "obs-not-finite",
    _ERROR,
    "An observation holds a number that is not finite, or beyond 1e18. Agents cut such episodes.",
    "mend the environment; a division by zero or a root of a negative number is the usual cause",
)
REUSED = Fault(
    "obs-reused",
    _HINT,
    "The environment returns the same array again and again, and writes into it.",
    "return obs.copy(); `surreal run` copies in any case, but your own loop would send what is overwritten",
)
LARGE_OBS = Fault(
    "obs-large",
    _HINT,
    "Observations hold numbers beyond 1,000, which networks learn badly from.",
    "scale them: the wrapper obs_scale or obs_clip, or model.args.normalize_obs where the model has it",
)
CONSTANT_OBS = Fault(
    "obs-constant",
    _HINT,
    "All observations of several steps are the same, so that nothing can be learned from them.",
    "right for a bandit; elsewhere see whether step returns the new state",
)
REWARD_UNSOUND = Fault(
    "reward-not-finite",
    _ERROR,
    "A reward is NaN, infinite, beyond 1e18, or no number. Agents cut such episodes.",
    "mend the environment",
)
LARGE_REWARD = Fault(
    "reward-large",
    _HINT,
    "Rewards are larger than 1,000 in size; losses of values grow with their square.",
    "scale them: env.wrappers: [{name: reward_scale, args: {scale: 0.001}}], or reward_clip",
)
NO_REWARD = Fault(
    "reward-always-zero",
    _HINT,
    "Random actions met no reward other than 0.",
    "if this lasts for long, explore more, or reward steps toward the goal",
)
MASK_EMPTY = Fault(
    "mask-without-action",
    _ERROR,
    'info["action_mask"] allows no action at all, so an agent has nothing to choose among.',
    "allow at least one action in each state that is not terminal",
)
MASK_SHAPE = Fault(
    "mask-of-other-shape",
    _ERROR,
    'info["action_mask"] does not have one entry for each discrete action.',
    "give one boolean for each action; of MultiDiscrete, those of all parts in a row",
)
MASK_MISSING = Fault(
    "mask-missing",
    _WARNING,
    'info["action_mask"] is there in some steps only; where it is missing, all actions count as legal.',
    "put it into the info of reset and of each step",
)
TIME_LIMIT = Fault(
    "time-limit-terminated",
    _WARNING,
    "Every episode of random actions is `terminated` at the same step: a time limit that looks like a terminal state. "
    "Learners would take what comes after it for worth 0.",
    "return truncated=True at a time limit, or leave it to gymnasium: register with max_episode_steps",
)
BOTH_ENDS = Fault(
    "terminated-and-truncated",
    _HINT,
    "Episodes end with terminated and truncated both true; terminated counts.",
    "return truncated only where the state is not terminal",
)
NO_END = Fault(
    "episode-without-end",
    _HINT,
    "No episode ended while the doctor played, so none may ever end.",
    "a time limit: env.wrappers: [{name: time_limit, args: {max_episode_steps: 1000}}]; evaluation has "
    "eval.max_episode_steps",
)
SLOW_STEP = Fault(
    "env-slow",
    _HINT,
    "The environment makes less than 50 steps in a second.",
    "env.pool: subproc steps several at once, one a core; or more agents, on other machines too",
)
SLOW_RESET = Fault(
    "reset-slow",
    _WARNING,
    "Most of the time of an episode goes into `reset`, and all environments of an agent wait for it.",
    "keep what reset builds from episode to episode; env.pool: subproc lets the others continue",
)
LEAK = Fault(
    "env-leaks",
    _WARNING,
    "The memory of the process grows with each episode.",
    "see what reset or step appends to, and never lets go",
)
NOT_SEEDABLE = Fault(
    "env-not-seedable",
    _WARNING,
    "The same seed and the same actions give another episode.",
    "call super().reset(seed=seed), and draw all random numbers from self.np_random",
)
CHECKER = Fault(
    "gymnasium-checker",
    _HINT,
    "gymnasium's checker has something to say.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
CHECKER_FAILS = Fault(
    "gymnasium-checker-fails",
    _WARNING,
    "gymnasium's checker refuses the environment: it breaks its interface.",
    "see https://gymnasium.farama.org/introduction/create_custom_env/",
)
