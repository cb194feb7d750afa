"""Every fault of a Redis server that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

AWAY = Fault(
    "redis-away",
    _ERROR,
    "Redis does not answer, refuses user or password, or is older than 6.2.",
    "see address, port, password and firewall; `surreal redis` starts a server",
)
READ_ONLY = Fault(
    "redis-read-only",
    _ERROR,
    "The server is a replica, which takes no writes.",
    "give the address of its primary",
)
EVICTS = Fault(
    "redis-evicts",
    _ERROR,
    "When it is full, Redis would remove keys by itself: experience and parameters would vanish from a run.",
    "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf; in a managed Redis, in its parameters",
)
EVICTED = Fault(
    "redis-has-evicted",
    _WARNING,
    "Redis has removed keys by itself since it started, perhaps those of runs.",
    "set maxmemory-policy to noeviction; runs of that time should start again",
)
UNBOUNDED = Fault(
    "redis-unbounded",
    _HINT,
    "Redis has no maxmemory, so the system ends it when memory runs out.",
    "redis-cli CONFIG SET maxmemory 8gb, some less than the machine has, and in redis.conf",
)
NEARLY_FULL = Fault(
    "redis-nearly-full",
    _WARNING,
    "More than 92 % of maxmemory is used. Beyond it agents wait, and parameters are not published.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
FULL = Fault(
    "redis-full",
    _ERROR,
    "Redis is at its maxmemory: it refuses what agents and learner write.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
TOO_SMALL = Fault(
    "redis-too-small",
    _WARNING,
    "maxmemory does not hold `replay.max_bytes` of experience next to the rest.",
    "raise maxmemory, or lower replay.max_bytes",
)
CANNOT_SAVE = Fault(
    "redis-cannot-save",
    _ERROR,
    "Redis could not write its data to disk, and refuses writes (MISCONF) until it can.",
    "see disk and permissions of its folder; without snapshots: redis-cli CONFIG SET save ''",
)
SNAPSHOTS = Fault(
    "redis-snapshots",
    _HINT,
    "Redis writes snapshots (RDB): each copies what changes meanwhile, up to twice the memory, and stalls agents.",
    "redis-cli CONFIG SET save ''; what has to survive a restart does so with appendonly yes",
)
SLOW_APPENDS = Fault(
    "redis-fsync-always",
    _HINT,
    "Redis waits for its disk at each write (appendfsync always).",
    "redis-cli CONFIG SET appendfsync everysec",
)
LATENCY = Fault(
    "redis-latency",
    _WARNING,
    "A round trip to Redis takes more than 20 ms; each chunk, and each batch of a remote replay, pays for it.",
    "bring Redis and the processes of the run together; meanwhile larger chunks: sender.chunk_steps",
)
SOME_LATENCY = Fault(
    "redis-latency-some",
    _HINT,
    "A round trip to Redis takes more than 3 ms.",
    "a server nearer by, or less next to it on its machine",
)
RIGHTS = Fault(
    "redis-rights",
    _ERROR,
    "This user may not use a command, a key or a channel that Surreal needs.",
    "redis-cli ACL SETUSER NAME resetchannels '~surreal:*' '&surreal:*' +@all -@admin -@dangerous +info",
)
CONNECTIONS = Fault(
    "redis-connections",
    _WARNING,
    "Redis has almost as many connections as it takes; each process of a run has some.",
    "redis-cli CONFIG SET maxclients 10000, and raise the open files of the server (ulimit -n)",
)
REPLY_LIMIT = Fault(
    "redis-reply-limit",
    _WARNING,
    "client-output-buffer-limit cuts ordinary connections whose reply is larger: parameters and batches are.",
    "redis-cli CONFIG SET client-output-buffer-limit 'normal 0 0 0'",
)
VALUE_LIMIT = Fault(
    "redis-value-limit",
    _WARNING,
    "proto-max-bulk-len is below 64 MiB, the size of the parts that parameters go in.",
    "redis-cli CONFIG SET proto-max-bulk-len 512mb",
)
CLOCK = Fault(
    "clock-skew",
    _WARNING,
    "This machine's clock differs from the server's by more than 5 s. Heartbeats and metrics are corrected for it, "
    "but logs, certificates, S3 and ages of files are not.",
    "set the clock by NTP: timedatectl set-ntp true",
)
SOME_CLOCK = Fault(
    "clock-skew-some",
    _HINT,
    "This machine's clock differs from the server's by more than a second.",
    "set the clock by NTP: timedatectl set-ntp true",
)
