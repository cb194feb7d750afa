"""The executor's pods: what their containers see, when they start again, and how they end."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.cluster import small
from tests.cluster.executor.cluster import Cluster
from tests.cluster.executor.pods.pod import Pod

Start = Callable[..., Cluster]
#: Writes a line when it is asked to end, and then does not.
STUBBORN = "import signal, time\nsignal.signal(15, lambda *_: print('asked', flush=True))\nwhile 1: time.sleep(1)"
#: Ends when it is asked to, after a moment.
POLITE = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(print('asked')))\nwhile 1: time.sleep(1)"
#: Prints the limit of a container's memory, by either version of control groups.
_MEMORY_LIMIT = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
#: Is there from the start, and dies by no signal that it does not handle.
SLEEPY = "import time; time.sleep(10_000)"


def test_a_container_has_the_environment_that_is_written(start_cluster: Start) -> None:
    cluster = start_cluster()
    env = [
        {"name": "PLAIN", "value": "1"},
        {"name": "BUILT", "value": "$(PLAIN)-$(MODE)-$(NOTHING)-$$(PLAIN)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    show = "import os, sys; print([os.environ[n] for n in sys.argv[1].split()], sys.argv[2:], flush=True)\n" + SLEEPY
    shown = small.container("", command=small.python(show, "PLAIN BUILT POD ADDRESS MODE", "$(POD)!"), env=env)
    shown["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    cluster.apply(small.pod("shown", shown))
    cluster.step()
    (pod,) = cluster.pods()
    assert pod.problem == "there is no ConfigMap settings"  # and it starts once there is one
    cluster.apply(small.stored("ConfigMap", "settings", MODE="fast"))
    cluster.wait(lambda: bool(pod.logs()), "what it shows")
    expected = ["1", "1-fast-$(NOTHING)-$(PLAIN)", "shown", pod.place.address, "fast"]
    assert pod.logs() == f"{expected} ['shown!']\n"


def test_volumes_are_where_and_what_is_written(start_cluster: Start) -> None:
    cluster = start_cluster()
    mounts = {"settings": "/etc/app", "key": "/run/secrets/key", "kept": "/data", "shared": "/tmp"}
    volumes = [
        {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a", "path": "sub/a.yaml"}]}},
        {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}},
        {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}},
        {"name": "shared", "emptyDir": {}},
    ]
    sleeper = small.container(
        SLEEPY,
        volumeMounts=[{"name": name, "mountPath": path} for name, path in mounts.items()],
        securityContext={
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        resources={"limits": {"memory": "256Mi", "cpu": "500m", "ephemeral-storage": "1Gi"}},
    )
    context = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10002, "fsGroup": 10003}
    cluster.apply(small.stored("ConfigMap", "settings", a="x: 1", b="y: 2") + small.stored("Secret", "key", word="s3"))
    cluster.apply(small.claim("kept"))
    cluster.apply(small.pod("main", sleeper, securityContext=context, volumes=volumes))
    pod = _runs(cluster, "main")
    assert _do(cluster, pod, "id").strip() == "uid=10001(10001) gid=10002(10002) groups=10002(10002),10003"
    assert _do(cluster, pod, "cat /etc/app/sub/a.yaml /run/secrets/key/word") == "x: 1s3"
    assert _do(cluster, pod, "ls /etc/app") == "sub\n"
    assert "Read-only" in _do(cluster, pod, "touch /run/secrets/key/other")
    assert "Read-only" in _do(cluster, pod, "touch /opt/file")
    assert "CapBnd:\t0000000000000000" in _do(cluster, pod, "grep CapBnd /proc/self/status")
    assert "NoNewPrivs:\t1" in _do(cluster, pod, "cat /proc/self/status")
    assert _do(cluster, pod, _MEMORY_LIMIT) == f"{256 * 2**20}\n"
    assert _do(cluster, pod, "echo kept > /data/file; echo shared > /tmp/file; hostname") == "main\n"

    # The claim's volume outlives the pod, the other does not.
    cluster.delete(pod, grace_s=0)
    cluster.wait(lambda: not cluster.pods(terminating=True), "its end")
    cluster.apply(small.pod("main", sleeper, securityContext=context, volumes=volumes))
    assert _do(cluster, _runs(cluster, "main"), "cat /data/file; ls /tmp") == "kept\n"


def test_a_pod_that_must_not_be_root_and_would_be_is_refused(start_cluster: Start) -> None:
    cluster = start_cluster()
    cluster.apply(small.pod("root", securityContext={"runAsNonRoot": True, "runAsUser": 0}))
    with pytest.raises(ValueError, match="runAsNonRoot"):
        cluster.step()


def test_what_ends_starts_again_later_each_time_unless_its_policy_forbids(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.02)
    failing = small.container("import sys; print('here'); sys.exit(3)")
    cluster.apply(small.pod("always", failing))
    cluster.apply(small.pod("never", failing, restartPolicy="Never"))
    cluster.apply(small.pod("done", small.container("print('here')"), restartPolicy="OnFailure"))
    cluster.wait(lambda: _restarts(cluster, "always") >= 4, "restarts")
    ends = [at for at, text in cluster.events if text == "pod always: ended with status 3"]
    gaps = [later - earlier for earlier, later in itertools.pairwise(ends)]
    # At once, then after 10, 20, 40 s of the cluster's pace, and what starting takes.
    assert all(gap >= wait for gap, wait in zip(gaps, (0, 0.2, 0.4, 0.8), strict=False))
    assert (_pod(cluster, "never").phase, _restarts(cluster, "never")) == ("Failed", 0)
    assert (_pod(cluster, "done").phase, _restarts(cluster, "done")) == ("Succeeded", 0)
    assert _pod(cluster, "always").logs().count("here") >= 4


def test_what_takes_more_memory_than_its_limit_is_killed(start_cluster: Start) -> None:
    cluster = start_cluster()
    greedy = small.container("x = bytearray(2**28)", resources={"limits": {"memory": "64Mi"}})
    cluster.apply(small.pod("greedy", greedy, restartPolicy="Never"))
    cluster.wait(lambda: bool(cluster.pods()) and cluster.pods()[0].phase == "Failed", "its end")
    assert "pod greedy: ended with status 137" in [text for _, text in cluster.events]


def test_a_container_that_is_not_alive_starts_again_and_one_not_ready_is_left_out(start_cluster: Start) -> None:
    cluster = start_cluster(pace=0.05)

    def told_by(path: str, failures: int = 2) -> dict[str, object]:
        return {"exec": {"command": ["test", "-e", path]}, "failureThreshold": failures, "timeoutSeconds": 5}

    server = small.container(
        small.WEB,
        ports=[{"name": "http", "containerPort": 8080}],
        startupProbe={"httpGet": {"port": "http"}, "failureThreshold": 1000, "timeoutSeconds": 5},
        livenessProbe=told_by("/tmp/alive"),
        readinessProbe=told_by("/tmp/ready", failures=1),
    )
    cluster.apply(small.pod("server", server, terminationGracePeriodSeconds=0))
    cluster.wait(lambda: any("startup is true" in text for _, text in cluster.events), "its start")
    assert not _pod(cluster, "server").is_ready
    _do(cluster, _pod(cluster, "server"), "touch /tmp/alive /tmp/ready")
    cluster.wait(lambda: _pod(cluster, "server").is_ready, "readiness")
    _do(cluster, _pod(cluster, "server"), "rm /tmp/ready")
    cluster.wait(lambda: not _pod(cluster, "server").is_ready, "unreadiness")
    before = _restarts(cluster, "server")
    _do(cluster, _pod(cluster, "server"), "rm /tmp/alive")
    cluster.wait(lambda: _restarts(cluster, "server") > before, "a restart")
    assert [text for _, text in cluster.events if "liveness is false" in text]


def test_who_ends_in_time_is_not_killed_and_who_does_not_is(start_cluster: Start) -> None:
    cluster = start_cluster()
    # The hook comes first, and belongs to the grace.
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook > /proc/1/fd/1"]}}}
    cluster.apply(small.pod("polite", small.container(POLITE, lifecycle=hook)))
    cluster.apply(small.pod("stubborn", small.container(STUBBORN), terminationGracePeriodSeconds=1))
    cluster.apply(small.pod("deaf", small.container(SLEEPY), terminationGracePeriodSeconds=1))
    # As the first processes of their namespaces they are told only what they listen for.
    listens = "grep -q 'SigCgt:.*4...$' /proc/1/status && echo yes"
    for name in ("polite", "stubborn"):
        cluster.wait(lambda: "yes" in _do(cluster, _runs(cluster, name), listens), name)  # noqa: B023
    pods = cluster.pods()
    for pod in pods:
        cluster.delete(pod)
    cluster.wait(lambda: not cluster.pods(terminating=True), "their end")
    texts = [text for _, text in cluster.events]
    assert [pod.logs() for pod in pods] == ["hook\nasked\n", "asked\n", ""]
    assert "pod polite: ended with status 0" in texts
    for name in ("stubborn", "deaf"):
        assert f"pod {name}: killed, its grace is over" in texts
        assert f"pod {name}: ended with status 137" in texts


def test_what_the_executor_does_not_know_is_refused(start_cluster: Start) -> None:
    cluster = start_cluster()
    with pytest.raises(ValueError, match="deployment/x: the executor does not know hostPID, tty of a pod"):
        inner = {"containers": [{"name": "a", "image": small.IMAGE, "tty": True}], "hostPID": True}
        cluster.apply(small.manifest("Deployment", "x", {"template": {"spec": inner}}))
    with pytest.raises(ValueError, match="daemonset/x: the executor does not know this kind"):
        cluster.apply(small.manifest("DaemonSet", "x", {}))
    cluster.apply(small.pod("strange", small.container("") | {"image": "registry.example/strange:1"}))
    with pytest.raises(OSError, match="image not known"):
        cluster.go_on(30.0)


def _pod(cluster: Cluster, name: str) -> Pod:
    (pod,) = (pod for pod in cluster.pods() if pod.name == name)
    return pod


def _runs(cluster: Cluster, name: str) -> Pod:
    cluster.wait(lambda: bool(cluster.pods()) and _pod(cluster, name).is_ready, name)
    return _pod(cluster, name)


def _restarts(cluster: Cluster, name: str) -> int:
    return _pod(cluster, name).restarts if cluster.pods() else 0


def _do(cluster: Cluster, pod: Pod, script: str) -> str:
    return cluster.execute(pod, "sh", "-c", script).stdout
