"""Off-policy learners, from transitions of a replay: DQN, DDPG with TD3, SAC; TD3+BC, IQL, CQL and behavior cloning.

Imports only the files next to this package; used through `surreal.learner`.
"""
