"""A run on this machine: from configuration to processes, and reading what they wrote.

checkpoints are in surreal/base/checkpoint, because replays and Redis snapshots use the same files.

process/     the frame that all processes share
build/       from configuration to objects
session/     the work next to a role's loop
lockstep/    agent and learner in one process, and the check before a start
roles/       one module for each role
observers/   callbacks and metric sinks
evaluation/  episodes that score a policy
self_play/   opponents that are past versions
view/        reading runs, in progress or finished
launch/      `surreal run`, on top of the roles
commands/    functions behind other commands
"""
