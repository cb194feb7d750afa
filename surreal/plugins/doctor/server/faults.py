"""Every fault of a Redis server that the doctor knows."""

from surreal.plugins.doctor.frame.finding import error, hint, warning

AWAY = error(
    "redis-away",
    "Redis does not answer, refuses user or password, or is older than 6.2.",
    "check address, port, password and firewall; `surreal redis` starts a server",
)
READ_ONLY = error(
    "redis-read-only",
    "The server is a replica, which does not accept writes.",
    "use the address of its primary",
)
EVICTS = error(
    "redis-evicts",
    "Redis removes keys when it is full, so a run would lose experience and parameters.",
    "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf, or in the settings of a managed Redis",
)
EVICTED = warning(
    "redis-has-evicted",
    "Redis has evicted keys since it started, perhaps those of runs.",
    "set maxmemory-policy to noeviction, and restart the runs of that time",
)
UNBOUNDED = hint(
    "redis-unbounded",
    "Redis has no maxmemory, so the system kills it when memory runs out.",
    "redis-cli CONFIG SET maxmemory 8gb, less than the machine's memory, and in redis.conf",
)
NEARLY_FULL = warning(
    "redis-nearly-full",
    "More than 92 % of maxmemory is used. When Redis is full, agents wait and parameters are not published.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
FULL = error(
    "redis-full",
    "Redis has reached its maxmemory: it refuses writes of agents and learner.",
    "raise maxmemory, or remove runs that are over: `surreal stop NAME --redis ADDRESS --delete`",
)
TOO_SMALL = warning(
    "redis-too-small",
    "maxmemory has no room for `replay.max_bytes` of experience in addition to other data.",
    "raise maxmemory, or lower replay.max_bytes",
)
CANNOT_SAVE = error(
    "redis-cannot-save",
    "Redis could not write its data to disk, and refuses writes (MISCONF) until it can.",
    "check disk and permissions of its folder; or turn off snapshots: redis-cli CONFIG SET save ''",
)
SNAPSHOTS = hint(
    "redis-snapshots",
    "Redis writes snapshots (RDB). Each copies changed memory, up to twice the size, and stalls agents.",
    "redis-cli CONFIG SET save ''; use appendonly yes to keep data over a restart",
)
SLOW_APPENDS = hint(
    "redis-fsync-always",
    "Redis waits for its disk at each write (appendfsync always).",
    "redis-cli CONFIG SET appendfsync everysec",
)
LATENCY = warning(
    "redis-latency",
    "A round trip to Redis takes more than 20 ms, which delays each chunk and each batch of a remote replay.",
    "move Redis closer to the processes of the run, or send larger chunks: sender.chunk_steps",
)
SOME_LATENCY = hint(
    "redis-latency-some",
    "A round trip to Redis takes more than 3 ms.",
    "use a closer server, or reduce the load on its machine",
)
RIGHTS = error(
    "redis-rights",
    "This user may not use a command, a key or a channel that Surreal needs.",
    "redis-cli ACL SETUSER NAME resetchannels '~surreal:*' '&surreal:*' +@all -@admin -@dangerous +info",
)
CONNECTIONS = warning(
    "redis-connections",
    "Redis has nearly reached its maximum number of connections; each process of a run needs some.",
    "redis-cli CONFIG SET maxclients 10000, and raise the open files of the server (ulimit -n)",
)
REPLY_LIMIT = warning(
    "redis-reply-limit",
    "client-output-buffer-limit closes normal connections with large replies, such as parameters and batches.",
    "redis-cli CONFIG SET client-output-buffer-limit 'normal 0 0 0'",
)
VALUE_LIMIT = warning(
    "redis-value-limit",
    "proto-max-bulk-len is below 64 MiB, the size in which parts of the parameters are stored.",
    "redis-cli CONFIG SET proto-max-bulk-len 512mb",
)
CLOCK = warning(
    "clock-skew",
    "This machine's clock differs from the server's by more than 5 s. Heartbeats and metrics are corrected for it, "
    "but logs, certificates, S3 and ages of files are not.",
    "set the clock by NTP: timedatectl set-ntp true",
)
SOME_CLOCK = hint(
    "clock-skew-some",
    "This machine's clock differs from the server's by more than a second.",
    "set the clock by NTP: timedatectl set-ntp true",
)
