set -euo pipefail

folder=$root/$run
# Processes share the cores of their node; learner.threads gives the learner more.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# -- on every node ---------------------------------------------------------------------------------------------------

# Exports the address of the run's Redis. It contains the password, so it is in a file that only its owner can read, and
# never on a command line. Nodes may see the file late, or an older one, so they wait for the file with this checksum.
connect() {
    if [[ -z $stamp ]]; then # the configuration has the address of Redis
        return
    fi
    local left
    for ((left = 300; left > 0; left--)); do
        if [[ $(cksum 2>/dev/null <"$folder/redis.address") == "$stamp" ]]; then
            read -r SURREAL_REDIS <"$folder/redis.address"
            export SURREAL_REDIS
            return
        fi
        sleep 1
    done
    echo "$folder/redis.address does not appear on $(hostname)" >&2
    return 1
}

# Runs a program, and restarts it when a signal killed it (too little memory, ...) or one of the learner's ranks (4), or
# when another process has its name (6), unless it died too often within a minute. When Slurm tells this shell to end, it
# has also told the program, which drains and is not restarted.
again() {
    local code deaths=()
    is_told=0
    trap 'is_told=1' TERM
    while true; do
        code=0
        "$@" || code=$?
        if ((is_told || (code <= 128 && code != 4 && code != 6 && code != 7))); then
            return "$code"
        fi
        deaths+=("$SECONDS")
        while ((SECONDS - deaths[0] > 60)); do
            deaths=("${deaths[@]:1}")
        done
        if ((${#deaths[@]} > restart_limit)); then
            return "$code"
        fi
        echo "$1 $2 ended with $code and is started again" >&2
        ((${#deaths[@]} == 1)) || sleep 2
    done
}

# Runs a process of the run: a role, and its arguments.
role() {
    again surreal "$@" --config "$config" "${settings[@]}" --run "$run" --run-dir "$folder" --resume
}

# Runs an agent: each task of the second part does, or each job of the array.
agent() {
    set -euo pipefail
    activate
    connect
    role agent --index "${SLURM_ARRAY_TASK_ID:-$SLURM_PROCID}"
}

# A job of the array gets these values from the first node. When its node is needed, Slurm requeues it.
if (($#)); then
    trap '' USR1
    run=$1 folder=$2 config=$3 stamp=$4
    agent
    exit
fi

# -- on the first node -----------------------------------------------------------------------------------------------

is_alive() {
    kill -0 "$1" 2>/dev/null
}

# Waits at most $2 seconds until a process has ended.
await() {
    local left
    for ((left = $2; left > 0; left--)); do
        is_alive "$1" || return 0
        sleep 1
    done
}

# Whether agents run, or wait for a node.
has_agents() {
    local found
    if ((!has_array)); then
        is_alive "$agents_step"
    elif found=$(squeue --noheader --jobs="$agents_job" 2>&1); then
        [[ -n $found ]]
    else # Slurm has forgotten the job, or does not answer now
        [[ $found != *Invalid* ]]
    fi
}

# Drains the run: agents send their last experience, and the learner writes a checkpoint.
drain() {
    trap '' TERM USR1
    is_draining=1
    echo "the run drains: $1" >&2
    if ((has_array)); then
        scancel "$agents_job" || true
    else
        kill -TERM "$agents_step" 2>/dev/null || true # it does not restart them
        scancel --signal=TERM "$SLURM_JOB_ID" || true # all steps; this script is not a step
    fi
    local process
    for process in "${first[@]}"; do
        kill -TERM "$process" 2>/dev/null || true
        pkill -TERM -P "$process" || true
    done
}

activate
mkdir -p "$folder"
# A run that continues has its configuration in its folder, so later changes of the original file do not affect it.
if [[ -f $folder/app.yaml ]]; then
    config=$folder/app.yaml
fi
echo "run $run in $folder, start $((${SLURM_RESTART_COUNT:-0} + 1)), on $(hostname)"

stamp=''
if ((${#redis_options[@]})); then
    rm -f "$folder/redis.address"
    surreal slurm redis --run "$run" --run-dir "$folder" "${redis_options[@]}" &
    redis=$!
    until [[ -s $folder/redis.address ]]; do
        is_alive "$redis" || wait "$redis" # it has logged the reason
        sleep 0.2
    done
    stamp=$(cksum <"$folder/redis.address")
fi

first=()
if ((parameter_servers)); then
    for ((number = 0; number < parameter_servers; number++)); do
        (connect && role ps --shard "$number/$parameter_servers") &
        first+=("$!")
    done
else
    (connect && role learner) &
    first=("$!")
fi
leader=${first[0]}
if ((has_evaluation)); then
    (connect && role eval) &
    first+=("$!")
fi

# The agents. Agents of an earlier start end when they lose its Redis; agents that wait in the queue are canceled.
if ((has_array)); then
    if [[ -s $folder/agents.job ]]; then
        scancel "$(<"$folder/agents.job")" || true
    fi
    agents_job=$(sbatch --parsable --array="0-$((agents - 1))" --nodes=1 --ntasks=1 --gres=none "${agent_job[@]}" \
        "${agent_task[@]}" --output="$folder/agent-%a.log" --export=ALL "$0" "$run" "$folder" "$config" "$stamp")
    agents_job=${agents_job%%;*}
    echo "$agents_job" >"$folder/agents.job"
else
    common=$(declare -p run folder config settings stamp restart_limit && declare -f activate connect again role agent)
    again srun --het-group=1 --ntasks="$agents" "${agent_task[@]}" --kill-on-bad-exit=0 --wait=0 --label --export=ALL \
        bash -c "$common; agent" </dev/null &
    agents_step=$!
fi

is_draining=0 is_warned=0
trap 'is_warned=1; drain "its time is nearly up, or its nodes are needed"' USR1 # by --signal, and PreemptParameters
trap 'drain "the job is told to end"' TERM                                       # scancel, preemption, requeue

# The run is over when the learner is. It cannot continue without Redis, nor for long without any agent.
failure='' seen_s=$SECONDS looked_s=$SECONDS
while is_alive "$leader"; do
    if ((!is_draining && SECONDS >= looked_s + 20)); then
        looked_s=$SECONDS
        if has_agents; then
            seen_s=$SECONDS
        elif ((SECONDS > seen_s + 60)); then
            failure='all agents have ended'
        fi
    fi
    if ((!is_draining)) && [[ -n $stamp ]] && ! is_alive "$redis"; then
        failure='Redis has ended'
    fi
    if ((!is_draining)) && [[ -n $failure ]]; then
        drain "$failure"
    fi
    sleep 1
done
code=0
wait "$leader" || code=$?
if ((code && !is_draining)); then # the others do not know yet
    drain "the learner has ended with exit code $code"
elif ((!has_array)); then
    kill -TERM "$agents_step" 2>/dev/null || true # agents that end now are not restarted
fi
for process in "${first[@]}"; do
    await "$process" 30
done
for ((left = 15; left > 0; left--)); do
    has_agents || break
    sleep 2
done
if ((has_array)); then
    scancel "$agents_job" 2>/dev/null || true # agents that have not started yet
    rm -f "$folder/agents.job"
fi
if [[ -n $stamp ]] && is_alive "$redis"; then
    kill -TERM "$redis"
    await "$redis" 120 # it may have much to move to the run's folder
fi

if [[ -n $failure ]]; then
    code=1
elif ((is_warned && is_requeued && code)); then
    echo "the run is not over: the job goes back into the queue" >&2
    trap - TERM
    scontrol requeue "$SLURM_JOB_ID" && sleep 60 # Slurm ends this script meanwhile
fi
echo "the run has ended with exit code $code; what it leaves is in $folder"
exit "$code"
