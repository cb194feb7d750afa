#!/bin/bash
# $name with $many: Redis, the learner and the evaluation on one node, agents on others.
#
#   sbatch FILE      starts it; `scancel JOB` ends it, and the learner writes a checkpoint
#
# Written by `surreal slurm render`; docs/slurm.md describes time limits, preemptions and failing nodes.

$resources

# The run's id, which a requeued job keeps. The folder of runs, on the shared file system. The configuration, and the
# settings that override it.
run=$run
root=$root
config=$config
settings=($settings)
# The agents: an array of jobs, or tasks of this one. The options of each job of an array, and of each task.
agents=$agents has_array=$has_array
agent_job=($queue)
agent_task=(--cpus-per-task=$agent_cpus --mem-per-cpu=$agent_memory)
# Processes next to the learner or in its place, and the limit of restarts.
parameter_servers=$parameter_servers has_evaluation=$has_evaluation
restart_limit=$restart_limit is_requeued=$is_requeued
# Options of the run's Redis; none if the configuration names a server.
redis_options=($redis_options)

# Puts `surreal` on the PATH of a node.
activate() {
    $activation
}
