"""Every fault of a run in progress that the doctor knows."""

from surreal.plugins.doctor.frame.finding import error, hint, warning

OVER = hint(
    "run-over",
    "The run was asked to end, and none of its processes is alive: there is nothing to check.",
    "`surreal run --resume --run NAME` continues it",
)
FAILED = error(
    "run-failed",
    "The run ended with an error.",
    "logs/NAME.log in the run's folder has the traceback; then `surreal run --resume --run NAME` continues the run",
)
KILLED = error(
    "run-killed",
    "The run's launcher did not record its end: it was killed, or the machine went down.",
    "check the system's log (dmesg) for lack of memory; `surreal run --resume --run NAME` continues the run",
)
UNTRAINED = warning(
    "run-untrained",
    "The run ended before its first update, so its policy is the initial one.",
    "raise run.max_env_steps or run.max_time_s, or lower replay.start_size",
)
UNREACHED = hint(
    "goal-missed",
    "No round of the evaluation reached the run's goal.",
    "raise run.max_env_steps and resume the run, or compare the settings with those of a preset for a similar task",
)
COLLAPSED = warning(
    "policy-collapsed",
    "The last policy is much worse than the best one.",
    "use eval/best.safetensors, the best policy; lower initial_learning_rate, or anneal it",
)
CONSTANT = warning(
    "returns-constant",
    "All rounds of the evaluation have the same return, whatever the policy does, so nothing can be learned.",
    "rewards must depend on actions: `surreal doctor NAME --only environment` shows those of random actions",
)
STUCK = hint(
    "no-improvement",
    "Returns have not improved since the first rounds.",
    "try environment and model: `surreal doctor NAME --only environment --only model`; then vary "
    "initial_learning_rate over several seeds: surreal sweep",
)
UNMOVED = warning(
    "weights-unchanged",
    "Updates hardly change the weights.",
    "raise initial_learning_rate (most presets have 3e-4 to 3e-3); "
    "`surreal doctor NAME --only model` shows whether the loss reaches all parameters",
)
NO_LEARNER = error(
    "learner-dead",
    "The learner was killed, or lost its connection, and was not restarted. Agents wait for it.",
    "restart it with --resume: `surreal learner --run NAME --resume`; its last error is in logs/learner.log",
)
DEAD = warning(
    "process-dead",
    "A process was killed, or lost its connection, and was not restarted.",
    "restart it with the same --index; on machines without `surreal run`, use a process manager for that",
)
RESTARTS = warning(
    "process-restarts",
    "A process was started more than once in the last ten minutes.",
    "its log has the cause at the end; the system's log (dmesg) reports lack of memory",
)
HANGS = error(
    "process-hangs",
    "A loop of a process hangs; its watchdog names the call.",
    "check that call; run.on_hang: restart restarts such a process, env.pool: subproc isolates an environment",
)
STALLED = error(
    "run-stalled",
    "Processes are alive, but there was neither an env step nor an update for a while.",
    "check what they wait for, and whether _act and learn of your classes return",
)
LOGGED = warning(
    "errors-logged",
    "Processes logged errors in the last minute.",
    "logs/NAME.log in the run's folder has them with their tracebacks",
)
STARVED = hint(
    "learner-starved",
    "The learner waits for experience most of the time: the agents are the bottleneck.",
    "use more agents (agent.count, or `surreal agent` on other machines), or more steps from each (env.num_envs)",
)
AGENTS_WAIT = hint(
    "agents-wait-for-credit",
    "Agents wait most of the time, because the learner has not yet sampled their experience often enough "
    "(replay.samples_per_insert): the learner is the bottleneck.",
    "use fewer agents (agent.count) at no loss, or let them act more: lower replay.samples_per_insert, or device: cuda",
)
SERVERS_WAITED_FOR = hint(
    "agents-wait-for-servers",
    "Agents wait most of the time for the parameters after their gradients.",
    "use fewer agents (agent.count), more parameter_server.servers, or a smaller learner.num_gradients",
)
AGENTS_BLOCKED = warning(
    "agents-wait-for-room",
    "Agents wait most of the time, because the replay is full.",
    "raise Redis' maxmemory and replay.max_bytes, and check whether the learner evicts or commits",
)
WAITS_FOR_REDIS = warning(
    "waits-for-redis",
    "A process waits for Redis, which does not answer it.",
    "check network and server from that process's machine: surreal doctor --only redis --redis ADDRESS",
)
WAITS_LONG = hint(
    "waits-for-others",
    "A process waits for other processes of the run.",
    "the sentence names them; check whether they run",
)
STALE = warning(
    "parameters-stale",
    "A process acts with parameters that are far behind the published ones.",
    "check its log and network: the listener cannot fetch them, or the process is stopped or overloaded",
)
LAG = hint(
    "policy-lag",
    "Experience is old when it arrives: its parameters were published more than 30 s earlier.",
    "lower sender.chunk_steps, sender.max_delay_s and broadcast.interval_updates",
)
TOO_OLD = warning(
    "trajectories-stale",
    "The replay drops trajectories, because their parameters are too far behind.",
    "raise replay.args.max_version_lag or broadcast.interval_updates, or set agent.round_steps so that agents wait",
)
SPI = warning(
    "samples-per-insert-off",
    "Samples and inserts differ by more than the limiter's band allows.",
    "if this continues, restart the learner; in a user's replay, see steps_per_sample",
)
UNUSED = hint(
    "experience-unused",
    "Most env steps are evicted before they are sampled.",
    "use fewer agents, larger batches, or replay.samples_per_insert: 4, which makes agents wait for the learner",
)
OVERUSED = hint(
    "experience-overused",
    "Each env step is sampled hundreds of times, which overfits to few transitions.",
    "use more agents, or replay.samples_per_insert: 32, which makes the learner wait for them",
)
BOUND = hint(
    "replay-bound-by-bytes",
    "The replay has reached replay.max_bytes at less than half of its capacity, so it is smaller than intended.",
    "raise replay.max_bytes (and redis.maxmemory), or sender.compression: lz4; or lower replay.capacity",
)
FILLS_UP = warning(
    "redis-fills-up",
    "Redis will be full before the replay reaches its limit, because other keys use its memory.",
    "raise maxmemory, lower replay.max_bytes, or remove runs that are over: `surreal stop NAME --delete`",
)
DROPPED = warning(
    "steps-dropped",
    "Agents drop experience because the replay does not accept it.",
    "set sender.on_full: wait (rlx.on_full for RLX servers), use fewer agents, or raise replay.max_bytes",
)
DROPPED_BY_RLX = hint(
    "rlx-steps-dropped",
    "RLX servers drop experience that the replay does not accept (rlx.on_full: drop), so that no client waits.",
    "rlx.on_full: wait delays clients instead; a lower replay.samples_per_insert accepts more",
)
REFUSED = warning(
    "chunks-refused",
    "The replay skips chunks that are damaged or contain impossible numbers.",
    "its log names the sender and the column; one cause is processes of different versions",
)
LOST_EPISODES = warning(
    "episodes-lost",
    "Environments raise exceptions or return impossible numbers, so their episodes are cut.",
    "run surreal doctor --only environment with the run's configuration",
)
WORKERS = warning(
    "workers-restarted",
    "Worker processes of environments end and are restarted.",
    "the agent's log has their exit codes; run surreal doctor --only environment with the run's configuration",
)
SKIPPED = warning(
    "updates-skipped",
    "Gradients are not finite, so updates are skipped.",
    "lower initial_learning_rate, clip gradients (gradients_norm_clipping), scale rewards and observations",
)
DIVERGED = warning(
    "learner-went-back",
    "The learner diverged, and went back to an earlier checkpoint.",
    "lower initial_learning_rate, clip gradients (gradients_norm_clipping), scale rewards and observations",
)
NOT_LOADED = warning(
    "parameters-refused",
    "A process refuses parameters that the learner publishes, and continues with old ones.",
    "its log has the reason: another model, or numbers that are not finite",
)
UPLOADS = warning(
    "uploads-fail",
    "Uploads to one of checkpoint.stores fail.",
    "check address and credentials; learning continues, but only the run's folder has the newest checkpoint",
)
SHARDS = warning(
    "shards-away",
    "A server of the experience does not answer; its agents send to another one.",
    "restart it: it is used as soon as it is back",
)
TELEMETRY = hint(
    "telemetry-dropped",
    "Lines of logs and metrics were dropped, because Redis was away or too slow.",
    "set log_level: warning to write less",
)
PROCESS_CLOCK = warning(
    "process-clock-skew",
    "The clock of a process's machine differs from the others by more than 5 s. Metrics are corrected for this, but "
    "logs and ages of files are not.",
    "set that machine's clock by NTP: timedatectl set-ntp true",
)
CLOCK_JUMPS = warning(
    "clock-jumps",
    "A clock was set, or a machine slept, in the last minute, so times before and after are inconsistent.",
    "let NTP slew the clock instead of stepping it; do not suspend a virtual machine during a run",
)
