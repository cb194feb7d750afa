"""Off-policy learners, from transitions of a replay: DQN, DDPG with TD3, SAC.

Knows the files beside this room; used through `surreal.learner`.
"""
