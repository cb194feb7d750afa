"""Interpolated policy gradients: on-policy and off-policy ones in one update.

`ipg` has the learner, `policy_critics` what critics say of a policy, `losses` pure functions. It knows both rooms
beside it, `on_policy` and `off_policy`, which do not know it.
"""
