"""Every fault of a Redis server that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

AWAY = Fault(
    "redis-away",
    _ERROR,
    "Redis does not answer, refuses user or password, or is older than 6.2.",
    "check address, port, password and firewall; `surreal redis` starts a server",
)
READ_ONLY = Fault(
    "redis-read-only",
    _ERROR,
    "The server is a replica, which does not accept writes.",
    "use the address of its primary",
)
EVICTS = Fault(
    "redis-evicts",
    _ERROR,
    "Redis removes keys when it is full, so a run would lose experience and parameters.",
    "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf, or in the settings of a managed Redis",
)
EVICTED = Fault(
    "redis-has-evicted",
    _WARNING,
    "Redis has evicted keys since it started, perhaps those of runs.",
    "set maxmemory-policy to noeviction, and restart the runs of that time",
)
UNBOUNDED = Fault(
    "redis-unbounded",
    _HINT,
    "Redis has no maxmemory, so the system kills it when memory runs out.",
    "redis-cli CONFIG SET maxmemory 8gb, less than the machine's memory, and in redis.conf",
)
NEARLY_FULL = Fault(
    "redis-nearly-full",
    _WARNING,
    "More than 92 % of maxmemory is used. When Redis is full, agents wait and parameters are not published.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
FULL = Fault(
    "redis-full",
    _ERROR,
    "Redis has reached its maxmemory: it refuses writes of agents and learner.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
TOO_SMALL = Fault(
    "redis-too-small",
    _WARNING,
    "maxmemory has no room for `replay.max_bytes` of experience in addition to other data.",
    "raise maxmemory, or lower replay.max_bytes",
)
CANNOT_SAVE = Fault(
    "redis-cannot-save",
    _ERROR,
    "Redis could not write its data to disk, and refuses writes (MISCONF) until it can.",
    "check disk and permissions of its folder; or turn off snapshots: redis-cli CONFIG SET save ''",
)
SNAPSHOTS = Fault(
    "redis-snapshots",
    _HINT,
    "Redis writes snapshots (RDB). Each copies changed memory, up to twice the size, and stalls agents.",
    "redis-cli CONFIG SET save ''; use appendonly yes to keep data over a restart",
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
    "A round trip to Redis takes more than 20 ms, which delays each chunk and each batch of a remote replay.",
    "move Redis closer to the processes of the run, or send larger chunks: sender.chunk_steps",
)
SOME_LATENCY = Fault(
    "redis-latency-some",
    _HINT,
    "A round trip to Redis takes more than 3 ms.",
    "use a closer server, or reduce the load on its machine",
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
    "Redis has nearly reached its maximum number of connections; each process of a run needs some.",
    "redis-cli CONFIG SET maxclients 10000, and raise the open files of the server (ulimit -n)",
)
REPLY_LIMIT = Fault(
    "redis-reply-limit",
    _WARNING,
    "client-output-buffer-limit closes normal connections with large replies, such as parameters and batches.",
    "redis-cli CONFIG SET client-output-buffer-limit 'normal 0 0 0'",
)
VALUE_LIMIT = Fault(
    "redis-value-limit",
    _WARNING,
    "proto-max-bulk-len is below 64 MiB, the size in which parts of the parameters are stored.",
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
