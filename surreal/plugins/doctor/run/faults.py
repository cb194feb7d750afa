"""Every fault of a run in progress that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

OVER = Fault(
    "run-over",
    _HINT,
    "No process of the run is alive, and it was told to end: there is nothing to look at.",
    "`surreal run --resume --run NAME` continues it",
)
FAILED = Fault(
    "run-failed",
    _ERROR,
    "The run ended with an error.",
    "logs/NAME.log in the run's folder has the traceback; then `surreal run --resume --run NAME` continues the run",
)
KILLED = Fault(
    "run-killed",
    _ERROR,
    "The run's launcher ended without writing how: it was killed, or the machine went down.",
    "see the system's log (dmesg) for memory that ran out; `surreal run --resume --run NAME` continues the run",
)
UNTRAINED = Fault(
    "run-untrained",
    _WARNING,
    "The run ended before its first update, so its policy is the initial one.",
    "raise run.max_env_steps or run.max_time_s, or lower replay.start_size",
)
UNREACHED = Fault(
    "goal-missed",
    _HINT,
    "No round of the evaluation reached the run's goal.",
    "raise run.max_env_steps and resume the run, or compare the settings with those of a preset for a similar task",
)
COLLAPSED = Fault(
    "policy-collapsed",
    _WARNING,
    "The last policy is much worse than the best one.",
    "play eval/best.safetensors, which holds the best; lower initial_learning_rate, or anneal it",
)
NO_LEARNER = Fault(
    "learner-dead",
    _ERROR,
    "The learner was killed, or lost its connection, and was not started again. Agents wait for it.",
    "start it again with --resume: `surreal learner --run NAME --resume`; its last error is in logs/learner.log",
)
DEAD = Fault(
    "process-dead",
    _WARNING,
    "A process was killed, or lost its connection, and was not started again.",
    "start it again with the same --index; on machines without `surreal run`, have a process manager do that",
)
RESTARTS = Fault(
    "process-restarts",
    _WARNING,
    "A process was started more than once in the last ten minutes.",
    "see the end of its log for what killed it; the system's log (dmesg) tells of memory that ran out",
)
HANGS = Fault(
    "process-hangs",
    _ERROR,
    "A loop of a process does not turn; its watchdog names the call.",
    "look at that call; run.on_hang: restart has such a process started again, env.pool: subproc keeps it apart",
)
STALLED = Fault(
    "run-stalled",
    _ERROR,
    "Processes are alive, but there was neither an env step nor an update for a while.",
    "see what they wait for; of user classes, whether _act and learn return",
)
LOGGED = Fault(
    "errors-logged",
    _WARNING,
    "Processes have logged errors in the last minute.",
    "logs/NAME.log in the run's folder has them with their tracebacks",
)
STARVED = Fault(
    "learner-starved",
    _HINT,
    "The learner waits for experience most of the time: the agents are the slower side.",
    "more agents: agent.count, or `surreal agent` on other machines; more steps from each: env.num_envs",
)
AGENTS_WAIT = Fault(
    "agents-wait-for-credit",
    _HINT,
    "Agents wait most of the time, since the learner has not yet sampled what they sent often enough "
    "(replay.samples_per_insert): the learner is the slower side.",
    "fewer agents (agent.count) lose nothing; a lower replay.samples_per_insert, or device: cuda, lets them act more",
)
SERVERS_WAITED_FOR = Fault(
    "agents-wait-for-servers",
    _HINT,
    "Agents wait most of the time for parameters that results from their gradients.",
    "fewer agents (agent.count), more of parameter_server.servers, or a smaller learner.num_gradients",
)
AGENTS_BLOCKED = Fault(
    "agents-wait-for-room",
    _WARNING,
    "Agents wait most of the time, because the replay is full.",
    "raise Redis' maxmemory and replay.max_bytes, and see whether the learner evicts or commits at all",
)
WAITS_FOR_REDIS = Fault(
    "waits-for-redis",
    _WARNING,
    "A process waits for Redis, which does not answer it.",
    "see network and server from that process's machine: surreal doctor --only redis --redis ADDRESS",
)
WAITS_LONG = Fault(
    "waits-for-others",
    _HINT,
    "A process waits for something that others of the run have to do.",
    "the sentence names them; check whether they run",
)
STALE = Fault(
    "parameters-stale",
    _WARNING,
    "A process acts with parameters that are far behind what the learner has published.",
    "see its log and network: the listener cannot fetch them, or the process is stopped or overloaded",
)
LAG = Fault(
    "policy-lag",
    _HINT,
    "Experience is old when it arrives: the parameters that acted were published more than 30 s ago.",
    "lower sender.chunk_steps, sender.max_delay_s and broadcast.interval_updates",
)
TOO_OLD = Fault(
    "trajectories-stale",
    _WARNING,
    "The replay drops trajectories, because their parameters are too far behind.",
    "raise replay.args.max_version_lag or broadcast.interval_updates, or set agent.round_steps, so that agents wait",
)
SPI = Fault(
    "samples-per-insert-off",
    _WARNING,
    "Sampling and inserting are further apart than the limiter's band.",
    "if it does not come back by itself, restart the learner; in a user's replay, see steps_per_sample",
)
UNUSED = Fault(
    "experience-unused",
    _HINT,
    "Most env steps leave the replay without ever being sampled.",
    "fewer agents, larger batches, or replay.samples_per_insert: 4, which lets agents wait for the learner",
)
OVERUSED = Fault(
    "experience-overused",
    _HINT,
    "Each env step is sampled hundreds of times, which overfits to few transitions.",
    "more agents, or replay.samples_per_insert: 32, which lets the learner wait for them",
)
BOUND = Fault(
    "replay-bound-by-bytes",
    _HINT,
    "The replay is at replay.max_bytes with less than half of its capacity, so it is smaller than it was meant to be.",
    "raise replay.max_bytes (and redis.maxmemory), or sender.compression: lz4; or set replay.capacity to what fits",
)
FILLS_UP = Fault(
    "redis-fills-up",
    _WARNING,
    "Redis will be full before the replay has reached its bound: other keys have taken its room.",
    "raise maxmemory, lower replay.max_bytes, or remove runs that are over: `surreal stop NAME --delete`",
)
DROPPED = Fault(
    "steps-dropped",
    _WARNING,
    "Agents drop experience that the replay does not take.",
    "sender.on_full: wait (rlx.on_full for RLX servers), fewer agents, or a larger replay.max_bytes",
)
DROPPED_BY_RLX = Fault(
    "rlx-steps-dropped",
    _HINT,
    "RLX servers drop experience that the replay does not take, as rlx.on_full says, so that no client has to wait.",
    "rlx.on_full: wait holds clients up instead; a lower replay.samples_per_insert lets more in",
)
REFUSED = Fault(
    "chunks-refused",
    _WARNING,
    "The replay skips chunks that are damaged, or hold impossible numbers.",
    "its log names the sender and the column; processes of different versions are one cause",
)
LOST_EPISODES = Fault(
    "episodes-lost",
    _WARNING,
    "Environments raise exceptions or show impossible numbers, so their episodes are cut.",
    "surreal doctor --only environment, with the run's configuration",
)
WORKERS = Fault(
    "workers-restarted",
    _WARNING,
    "Worker processes of environments end and are started again.",
    "the agent's log has their exit codes; surreal doctor --only environment, with the run's configuration",
)
SKIPPED = Fault(
    "updates-skipped",
    _WARNING,
    "Gradients are not finite, so updates are skipped.",
    "lower initial_learning_rate, clip gradients (gradients_norm_clipping), scale rewards and observations",
)
DIVERGED = Fault(
    "learner-went-back",
    _WARNING,
    "The learner diverged, and went back to an earlier checkpoint.",
    "lower initial_learning_rate, clip gradients (gradients_norm_clipping), scale rewards and observations",
)
NOT_LOADED = Fault(
    "parameters-refused",
    _WARNING,
    "A process refuses parameters that the learner publishes, and continues with old ones.",
    "its log has the reason: another model, or numbers that are not finite",
)
UPLOADS = Fault(
    "uploads-fail",
    _WARNING,
    "Checkpoints do not arrive in one of checkpoint.stores.",
    "see place and credentials; learning continues, but only the run's folder has the newest checkpoint",
)
SHARDS = Fault(
    "shards-away",
    _WARNING,
    "A server of the experience does not answer; its agents send elsewhere.",
    "start it again: it is used as soon as it is back",
)
TELEMETRY = Fault(
    "telemetry-dropped",
    _HINT,
    "Lines of logs and metrics were dropped, because Redis was away or too slow.",
    "log_level: warning writes less",
)
PROCESS_CLOCK = Fault(
    "process-clock-skew",
    _WARNING,
    "The clock of a process's machine differs from the others by more than 5 s. Metrics are corrected for it, but logs "
    "and ages of files are not.",
    "set that machine's clock by NTP: timedatectl set-ntp true",
)
CLOCK_JUMPS = Fault(
    "clock-jumps",
    _WARNING,
    "A clock was set, or a machine slept, in the last minute: times before and after do not fit together.",
    "let NTP slew in place of stepping; a virtual machine must not be suspended during a run",
)
