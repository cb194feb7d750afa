"""Planted faults of runs: heartbeats and metrics in a real Redis, as processes write them, and what is found there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.distributed.telemetry.records import encode_log, encode_metrics, entry_fields
from surreal.plugins.doctor.examination import Examination
from surreal.plugins.doctor.finding import Finding, Severity
from surreal.plugins.doctor.look import Look, clocks, counts, look_at, memory, size, usage
from surreal.plugins.doctor.run import alive, logged, parameters, waiting
from surreal.plugins.doctor.subject import Subject, find_subject
from surreal.run.process import registry
from tests.servers import RedisProcess

SPAN_S = 40.0
MB = 1 << 20
Values = Mapping[str, float]

#: What a healthy learner and agent of cartpole-dqn say, at the beginning and at the end of the window.
LEARNER: tuple[Values, Values] = (
    {
        "learner/updates_total": 1000,
        "broadcast/version": 50,
        "replay/env_steps_total": 5000,
        "replay/samples_total": 128_000,
    },
    {
        "learner/updates_total": 9000,
        "learner/optimize_ms": 4.0,
        "learner/policy_lag_versions": 3,
        "broadcast/version": 450,
        "replay/env_steps_total": 37_000,
        "replay/samples_total": 1_152_000,
        "replay/samples_per_insert": 32.0,
        "replay/transitions_count": 37_000,
        "replay/fill_ratio": 0.74,
        "replay/redis_bytes": 2 * MB,
        "replay/bytes_per_transition": 60,
    },
)  # fmt: skip
AGENT: tuple[Values, Values] = (
    {"env/steps_total": 2000, "sender/wait_s_total": 1.0, "listener/version": 48},
    {"env/steps_total": 18_000, "sender/wait_s_total": 11.0, "listener/version": 449, "listener/age_s": 0.2},
)


class FakeRun:
    """Writes what processes of a run would have written."""

    def __init__(self, address: str, run: str, *overrides: str) -> None:
        self.config: Config = load_config("cartpole-dqn", overrides)
        self.client = RedisClient(address, run=run)
        self.now_s = self.client.server_time_s()
        registry.register(self.client, self.config, registry.Registrant("learner", leads=True))

    def process(
        self,
        name: str,
        metrics: tuple[Values, Values] = ({}, {}),
        *,
        life: int = 0,
        age_s: float = 0.0,
        waits_for: tuple[str, ...] = (),
        hangs_in: str = "",
        offset_s: float = 0.0,
        error: str = "",
        version: int = 450,
    ) -> None:
        """Write the heartbeat of a process, and its metrics at two times."""
        role = name.partition("-")[0]
        process = f"{name}-{life}"
        beat = Heartbeat(
            process, role, name, 100 + life, "host", self.now_s - 300, self.now_s - age_s, version, 37_000,
            dict(metrics[1]), waits_for=waits_for, hangs_in=hangs_in,
        )  # fmt: skip
        self.client.redis.hset(self.client.run_keys.processes, process, beat.encode())  # type: ignore[arg-type]
        for sequence, values in enumerate((metrics[0], *metrics), 1):
            # The first entry of a process is written before it knows the server's clock.
            known_s = 0.0 if sequence == 1 else offset_s
            time_s = self.now_s - (SPAN_S if sequence < 3 else 0.0) - known_s
            lines = encode_metrics(time_s=time_s, step=1, values=values)
            if error:
                lines.append(encode_log(time_s=time_s, level="ERROR", logger="x", message=error))
            fields = entry_fields(
                process=process, name=name, role=role, sequence=sequence, offset_s=known_s, lines=lines
            )
            self.client.redis.xadd(self.client.run_keys.log, fields)  # type: ignore[arg-type]

    def healthy(self, *, learner: Values | None = None, agent: Values | None = None) -> FakeRun:
        """Write a learner, an agent and an evaluation, with other values at the end."""
        self.process("learner", (LEARNER[0], {**LEARNER[1], **(learner or {})}))
        self.process("agent-0", (AGENT[0], {**AGENT[1], **(agent or {})}))
        self.process("eval", ({}, {"eval/rounds_total": 3}))
        return self

    def look(self) -> Look:
        return look_at(self.client, self.config)

    def findings(self) -> list[Finding]:
        """Of the whole section."""
        subject = Subject("a run", self.config, address=self.address, run=self.client.run)
        return list(Examination(subject, ["run", "clocks"]).run())

    @property
    def address(self) -> str:
        return self.client.address


def found(findings: Iterable[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


@pytest.fixture
def fake(redis_server: RedisProcess, run_id: str) -> FakeRun:
    return FakeRun(redis_server.address, run_id)


def test_nothing_is_found_in_a_healthy_run(fake: FakeRun) -> None:
    findings = fake.healthy().findings()
    assert found(findings) == []
    text = "\n".join(finding.text for finding in findings)
    assert "3 processes are alive: agent-0, eval, learner" in text
    assert "agents wait 25% of the time" in text and "the learner computes 80% of the time" in text
    assert "samples per insert are 32, set to 32" in text


def test_a_dead_learner_is_found_and_a_dead_agent(fake: FakeRun) -> None:
    fake.process("learner", LEARNER, age_s=42.0)
    fake.process("agent-0", AGENT, waits_for=("waiting to send experience, at most 300 s: no credit",))
    fake.process("agent-1", AGENT, age_s=61.0)
    findings = list(alive(fake.look()))
    assert found(findings) == ["process-dead", "learner-dead"]
    assert "learner on host, pid 100, sent its last heartbeat 42 s ago" in findings[1].text
    assert f"--run {fake.client.run} --resume" in findings[1].remedy
    assert found(waiting(fake.look())) == ["waits-for-others"]  # no setting is to blame


def test_a_process_that_was_started_again_and_lives_is_not_dead_but_many_lives_are_found(fake: FakeRun) -> None:
    fake.process("agent-0", life=1, age_s=100.0)
    fake.process("agent-0", life=2)
    assert found(alive(fake.look())) == []
    fake.process("agent-0", life=3, age_s=50.0)
    findings = list(alive(fake.look()))
    assert found(findings) == ["process-restarts"] and "agent-0 was started 3 times" in findings[0].text


def test_a_run_that_is_over_is_said_to_be_and_nothing_else(fake: FakeRun) -> None:
    fake.process("learner", LEARNER, age_s=100.0)
    registry.request_stop(fake.client, "surreal stop")
    assert found(fake.findings()) == ["run-over"]


def test_a_hanging_loop_and_a_logged_error_are_found(fake: FakeRun) -> None:
    fake.process("agent-0", AGENT, hangs_in="the main loop hangs in step (my_env.py line 12)", error="it burns")
    look = fake.look()
    assert found(alive(look)) == ["process-hangs"]
    (finding,) = logged(look)
    assert finding.fault == "errors-logged" and finding.text == "agent-0: it burns"


def test_a_starved_learner_is_found_with_the_setting_to_change(fake: FakeRun) -> None:
    fake.healthy(learner={"learner/optimize_ms": 0.5})
    (finding,) = waiting(fake.look())
    assert finding.fault == "learner-starved" and "computes 10% of the time" in finding.text
    assert "agent.count" in finding.remedy and "samples_per_insert than 32" in finding.remedy


def test_agents_that_wait_for_credit_are_found_and_how_many_would_do(fake: FakeRun) -> None:
    fake.healthy(agent={"sender/wait_s_total": 37.0})
    for number in range(1, 5):
        fake.process(f"agent-{number}", (AGENT[0], {**AGENT[1], "sender/wait_s_total": 37.0}))
    (finding,) = waiting(fake.look())
    assert finding.fault == "agents-wait-for-credit" and "agents wait 90% of the time" in finding.text
    assert "1 of 5 agents would send as much" in finding.remedy


def test_agents_that_wait_for_room_are_found(redis_server: RedisProcess, run_id: str) -> None:
    fake = FakeRun(redis_server.address, run_id, "replay.samples_per_insert=null")
    fake.healthy(agent={"sender/wait_s_total": 37.0})
    assert found(waiting(fake.look())) == ["agents-wait-for-room"]


def test_agents_that_wait_for_parameter_servers_are_found(redis_server: RedisProcess, run_id: str) -> None:
    fake = FakeRun(redis_server.address, run_id, "learner.gradients=agents", "replay.samples_per_insert=4")
    fake.process("agent-0", ({"gradients/wait_s_total": 1.0, "env/steps_total": 1},
                             {"gradients/wait_s_total": 31.0, "env/steps_total": 99}))  # fmt: skip
    assert found(waiting(fake.look())) == ["agents-wait-for-servers"]


def test_a_standstill_is_found_with_what_is_waited_for(fake: FakeRun) -> None:
    fake.process("learner", (LEARNER[0], LEARNER[0]), waits_for=("waiting for the first experience of an agent",))
    fake.process("agent-0", (AGENT[0], AGENT[0]))
    (finding,) = waiting(fake.look())
    assert finding.fault == "run-stalled"
    assert "nothing moved for 40 s; learner: waiting for the first experience of an agent" in finding.text


def test_waits_for_redis_and_for_others_are_found(fake: FakeRun) -> None:
    fake.healthy()
    fake.process("agent-1", AGENT, waits_for=("waiting for Redis at r:6379, to send experience",))
    fake.process("agent-2", AGENT, waits_for=("waiting for the learner's other ranks",))
    assert found(waiting(fake.look())) == ["waits-for-redis", "waits-for-others"]


def test_stale_parameters_and_a_long_lag_are_found(fake: FakeRun) -> None:
    fake.healthy(agent={"listener/version": 12, "listener/age_s": 90.0})
    (finding,) = parameters(fake.look())
    assert finding.fault == "parameters-stale" and "agent-0 has version 12" in finding.text
    fake.process("learner", (LEARNER[0], {**LEARNER[1], "learner/policy_lag_versions": 900.0}))
    assert found(parameters(fake.look())) == ["parameters-stale", "policy-lag"]


@pytest.mark.parametrize(
    ("metric", "fault"),
    [
        ("sender/dropped_steps_total", "steps-dropped"),
        ("replay/refused_chunks_total", "chunks-refused"),
        ("replay/stale_trajectories_total", "trajectories-stale"),
        ("replay/shards_away_count", "shards-away"),
        ("env/lost_episodes_total", "episodes-lost"),
        ("env/worker_restarts_total", "workers-restarted"),
        ("learner/skipped_updates_total", "updates-skipped"),
        ("learner/rollbacks_total", "learner-went-back"),
        ("learner/checkpoint_upload_failures_total", "uploads-fail"),
        ("listener/refused_total", "parameters-refused"),
        ("telemetry/dropped_lines_total", "telemetry-dropped"),
    ],
)
def test_what_is_dropped_refused_or_skipped_is_found(fake: FakeRun, metric: str, fault: str) -> None:
    fake.process("learner", ({**LEARNER[0], metric: 1.0}, {**LEARNER[1], metric: 13.0}))
    (finding,) = counts(fake.look())
    assert finding.fault == fault and "13" in finding.text and "learner" in finding.text


def test_what_rlx_servers_drop_so_that_clients_need_not_wait_is_a_hint(fake: FakeRun) -> None:
    fake.process("rlx-server", ({"sender/dropped_steps_total": 1.0}, {"sender/dropped_steps_total": 9.0}))
    assert found(counts(fake.look())) == ["rlx-steps-dropped"]


def test_what_happened_long_ago_is_not_held_against_a_run(fake: FakeRun) -> None:
    fake.process("agent-0", ({"sender/dropped_steps_total": 64.0}, {"sender/dropped_steps_total": 64.0}))
    assert found(counts(fake.look())) == []


def test_a_ratio_outside_of_its_band_is_found(fake: FakeRun) -> None:
    fake.healthy(learner={"replay/samples_total": 128_000 + 5 * 32 * 32_000})
    (finding,) = usage(fake.look())
    assert finding.fault == "samples-per-insert-off" and "are 160 in the last minute, set to 32" in finding.text


@pytest.mark.parametrize(("used", "fault"), [(0.1, "experience-unused"), (900.0, "experience-overused")])
def test_experience_that_is_hardly_used_or_all_too_often_is_found(
    redis_server: RedisProcess, run_id: str, used: float, fault: str
) -> None:
    fake = FakeRun(redis_server.address, run_id, "replay.samples_per_insert=null")
    fake.healthy(learner={"replay/samples_per_insert": used, "replay/evicted_chunks_total": 9})
    assert found(usage(fake.look())) == [fault]


def test_a_replay_that_bytes_bound_is_found(fake: FakeRun) -> None:
    bound = fake.config.replay.max_bytes
    fake.process("learner", ({**LEARNER[0], "replay/evicted_chunks_total": 1}, {
        **LEARNER[1], "replay/evicted_chunks_total": 50, "replay/fill_ratio": 0.1, "replay/redis_bytes": 0.9 * bound,
    }))  # fmt: skip
    assert found(size(fake.look())) == ["replay-bound-by-bytes"]


def test_a_redis_that_will_be_full_before_the_replay_is_found(fake: FakeRun) -> None:
    before = {**LEARNER[0], "replay/redis_bytes": 1 * MB}
    fake.process("learner", (before, {**LEARNER[1], "replay/redis_bytes": 21 * MB}))
    look = fake.look()
    (finding,) = memory(look, used_bytes=90 * MB, maxmemory_bytes=100 * MB)
    assert finding.fault == "redis-fills-up" and "grows by 0.5 MiB/s" in finding.text and "full in 20 s" in finding.text
    assert found(memory(look, used_bytes=30 * MB, maxmemory_bytes=100 * MB)) == []


def test_clocks_of_processes_that_differ_or_jump_are_found(fake: FakeRun) -> None:
    fake.process("learner", LEARNER)
    fake.process("agent-0", AGENT, offset_s=-30.0)
    (finding,) = clocks(fake.look())
    assert finding.fault == "process-clock-skew" and finding.text == "agent-0 is 30.0 s ahead of Redis"
    fake.process("agent-1", AGENT, age_s=-7.0)
    fake.process("agent-0", AGENT, offset_s=0.0)
    assert found(clocks(fake.look())) == ["clock-jumps", "clock-jumps"]


def test_what_makes_no_sense_in_the_stream_is_passed_over(fake: FakeRun) -> None:
    fake.client.redis.xadd(fake.client.run_keys.log, {"process": "x"})
    assert found(fake.healthy().findings()) == []


def test_a_run_is_found_by_its_name_with_its_configuration(fake: FakeRun) -> None:
    fake.healthy()
    subject = find_subject(fake.client.run, redis=fake.address)
    assert subject.run == fake.client.run and subject.config is not None
    assert subject.config.replay.samples_per_insert == 32
