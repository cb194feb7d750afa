"""`surreal metrics`: scraped over HTTP, with a real Redis."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from surreal.base.errors import SurrealError
from surreal.base.system.program import install_command
from surreal.cli.program import main
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.clusters.scaling.serving import open_reader, serve
from surreal.plugins.runs.deleting import delete_run
from surreal.run.process import registry
from surreal.run.process.registry import Registrant

#: Name and labels to value.
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def plant(address: str, run: str, **changes: Any) -> None:
    """Let a run's learner, and an agent of its, say that they are alive."""
    with RedisClient(address, run=run) as client:
        registry.register(client, load_config("cartpole-dqn"), Registrant("learner", leads=True))
        now_s = client.server_time_s()
        learner = {"learner/waiting_ratio": 0.25, "learner/updates_total": 7.0, "replay/samples_per_insert": 31.0}
        learner |= {"replay/samples_per_insert_low": 30.0, "replay/samples_per_insert_high": 34.0} | changes
        for role, name, metrics in (("learner", "learner", learner), ("agent", "agent-0", {"agent/busy_ratio": 0.5})):
            beat = Heartbeat(f"{name}-a", role, name, 1, "host", now_s, now_s, global_step=340, metrics=metrics)
            client.redis.hset(client.run_keys.processes, beat.id, beat.encode())  # type: ignore[arg-type]


@contextmanager
def serving(address: str, run: str | None = None) -> Iterator[str]:
    """Serve, on a thread; gives the page's address."""
    stop, ready, pages = threading.Event(), threading.Event(), list[str]()

    def on_ready(page: str) -> None:
        pages.append(page)
        ready.set()

    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "on_ready": on_ready, "stop": stop}
    thread = threading.Thread(target=serve, args=(open_reader(address, run),), kwargs=options)
    thread.start()
    try:
        assert ready.wait(30.0)
        yield pages[0]
    finally:
        stop.set()
        thread.join(30.0)
    assert not thread.is_alive()


def scrape(page: str) -> Samples:
    with urlopen(page, timeout=30.0) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of_run(samples: Samples, run: str) -> dict[str, float]:
    return {name: value for (name, labels), value in samples.items() if ("run", run) in labels}


def test_a_scrape_has_what_the_processes_say_with_names_and_kinds_of_prometheus(
    start_redis: Callable[..., Any],
) -> None:
    server = start_redis()
    plant(server.address, "one")
    plant(server.address, "two", **{"learner/waiting_ratio": 0.5})
    with serving(server.address) as page:
        samples = scrape(page)
    one = of_run(samples, "one")
    assert one["surreal_learner_waiting_ratio"] == 0.25
    assert (one["surreal_agents_busy"], one["surreal_env_steps_total"], one["surreal_updates_total"]) == (0.5, 340, 7)
    band = [one[f"surreal_samples_per_insert{edge}"] for edge in ("_lower", "", "_upper")]
    assert band == [30.0, 31.0, 34.0]
    assert of_run(samples, "two")["surreal_learner_waiting_ratio"] == 0.5
    assert samples["surreal_processes", (("role", "learner"), ("run", "one"))] == 1
    assert (samples["surreal_redis_up", ()], samples["surreal_scrape_errors_total", ()]) == (1, 0)


def test_a_scrape_is_one_round_trip_however_many_runs_there_are(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    for run in ("one", "two", "three"):
        plant(server.address, run)
    with RedisClient(server.address) as client, serving(server.address) as page:
        scrape(page)  # it knows the runs by now
        before: Any = client.redis.info("commandstats")
        assert len({labels for name, labels in scrape(page) if name == "surreal_run_ending"}) == 3
        after: Any = client.redis.info("commandstats")
    calls = {name: value["calls"] - before.get(name, {"calls": 0})["calls"] for name, value in after.items()}
    assert {name: count for name, count in calls.items() if count and name != "cmdstat_info"} == {
        "cmdstat_time": 1, "cmdstat_hgetall": 4, "cmdstat_get": 3,
    }  # fmt: skip


def test_a_scrape_has_the_memory_of_redis_its_file_and_restarts(start_redis: Callable[..., Any]) -> None:
    server = start_redis(appendonly=True)
    plant(server.address, "one")
    with RedisClient(server.address, run="one") as client, serving(server.address) as page:
        client.redis.config_set("maxmemory", 1 << 28)
        samples = scrape(page)
        assert samples["surreal_redis_max_memory_bytes", ()] == 1 << 28
        assert 0 < samples["surreal_redis_memory_bytes", ()] < 1 << 28
        assert samples["surreal_redis_appendonly_ok", ()] == 1
        assert of_run(samples, "one")["surreal_restarts_total"] == 0
        now_s = client.server_time_s()
        beat = Heartbeat("agent-0-b", "agent", "agent-0", 1, "host", now_s, now_s)
        client.redis.hset(client.run_keys.processes, beat.id, beat.encode())  # type: ignore[arg-type]
        client.redis.config_set("appendonly", "no")
        samples = scrape(page)
        assert of_run(samples, "one")["surreal_restarts_total"] == 1
        assert ("surreal_redis_appendonly_ok", ()) not in samples


def test_runs_that_begin_and_end_are_told_and_told_no_more(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    plant(server.address, "one")
    with RedisClient(server.address, run="one") as client, serving(server.address) as page:
        client.redis.hset("surreal:runs", "no id of ours!", "{}")
        assert of_run(scrape(page), "one")
        plant(server.address, "two")
        assert of_run(scrape(page), "two")
        registry.request_stop(client, "enough")
        assert of_run(scrape(page), "one")["surreal_run_ending"] == 1
        client.redis.delete(client.run_keys.processes)
        assert not of_run(scrape(page), "one")
    with serving(server.address, "two") as page:
        assert {dict(labels).get("run") for _, labels in scrape(page)} == {"two", None}


def test_while_redis_is_away_there_are_errors_and_no_old_values(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    plant(server.address, "one")
    with serving(server.address) as page:
        assert of_run(scrape(page), "one")
        server.kill()
        samples = scrape(page)
        assert (samples["surreal_redis_up", ()], samples["surreal_scrape_errors_total", ()]) == (0, 1)
        assert not of_run(samples, "one")
        server.start()
        plant(server.address, "one")
        samples = scrape(page)
        assert (samples["surreal_redis_up", ()], samples["surreal_scrape_errors_total", ()]) == (1, 1)
        assert of_run(samples, "one")


def test_runs_on_a_cluster_are_read_where_they_are(redis_cluster: Any, run_id: str) -> None:
    plant(redis_cluster.address, run_id)
    try:
        with serving(redis_cluster.address) as page:
            assert of_run(scrape(page), run_id)["surreal_updates_total"] == 7
    finally:
        with RedisClient(redis_cluster.address, run=run_id) as client:
            client.redis.delete(client.run_keys.processes)
            delete_run(client)


def test_a_port_that_is_taken_and_an_address_that_is_none_are_said_in_a_line(
    start_redis: Callable[..., Any], capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    server = start_redis()
    with serving(server.address) as page:
        port = int(page.rpartition(":")[2].partition("/")[0])
        with pytest.raises(SurrealError, match=f"cannot listen on 127.0.0.1 port {port}: address already in use"):
            serve(open_reader(server.address, None), host="127.0.0.1", port=port, on_ready=print)
    assert main(["metrics", "--redis", "http://nowhere"]) == 2
    assert main(["metrics", "--redis", f"127.0.0.1:{free_port}", "--once"]) == 1
    assert f"127.0.0.1:{free_port} does not answer" in capsys.readouterr().err


def test_numbers_that_make_no_sense_are_left_out(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    odd = {"learner/waiting_ratio": 1e308, "rlx/active_sessions_count": 1e308, "learner/updates_total": float("inf")}
    plant(server.address, "one", **odd)
    with RedisClient(server.address, run="one") as client, serving(server.address) as page:
        now_s = client.server_time_s()
        beat = Heartbeat("other", "agent", 'a"\n} 1', 1, "host", now_s, now_s, metrics=odd)
        client.redis.hset(client.run_keys.processes, "other", beat.encode())  # type: ignore[arg-type]
        client.redis.hset(client.run_keys.processes, "garbage", b"\x00{")
        one = of_run(scrape(page), "one")
    assert one["surreal_env_steps_total"] == 340
    assert {"surreal_rlx_sessions", "surreal_updates_total"}.isdisjoint(one)


def test_without_prometheus_client_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "surreal.plugins.clusters.scaling.serving")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["metrics", "--redis", "127.0.0.1:1"]) == 2
    assert install_command("prometheus") in capsys.readouterr().err


def test_once_prints_it(start_redis: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    server = start_redis()
    plant(server.address, "one")
    assert main(["metrics", "one", "--redis", server.address, "--once"]) == 0
    assert 'surreal_learner_waiting_ratio{run="one"} 0.25' in capsys.readouterr().out


def test_ctrl_c_ends_it(start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    command = [sys.executable, "-m", "surreal", "metrics", "--redis", server.address, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("metrics of all runs at http://127.0.0.1:")
        assert scrape(line.split()[5].rstrip(";"))["surreal_redis_up", ()] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60.0) == 0
