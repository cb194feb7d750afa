"""Learners of policies from trajectories that the policy itself, or nearly so, has just made.

Each algorithm is one file whose main method reads like its paper: `policy_gradient`, `a2c`, `vtrace`, `ppo`, `appo`,
`trpo`, `pqn`.
What they share: `base` has the options of a loss of policy, value and entropy, `evaluating` calls the model,
`policy_losses` are pure functions, `minibatches` splits batches. It knows the files of `learner`,
which do not know it.
"""
