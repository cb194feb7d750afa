"""Small manifests for tests of the executor, as text to apply.

Programs are Python's, without its environment, which starts them three times as fast.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.cluster.executor.cluster import IMAGE

#: Answers every request with the pod's name.
WEB = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["HOSTNAME"].encode())

http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
#: Asks a server for a page, and prints the last line that came; waits a second at most.
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)
connection.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(b"".join(iter(lambda: connection.recv(1024), b"")).decode().splitlines()[-1])
"""
#: Connects to a server, and says so; waits a second at most.
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1); print('connected')"


def python(program: str, *arguments: str) -> list[str]:
    """The command that runs a program."""
    return ["python3", "-I", "-S", "-c", program, *arguments]


def container(program: str, **fields: Any) -> dict[str, Any]:
    """A container that runs a program."""
    return {"name": "main", "image": IMAGE, "command": python(program), **fields}


def pod(name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None, **spec: Any) -> str:
    """A pod, by default one that sleeps."""
    sleeper = container("import time; time.sleep(10_000)")
    return manifest("Pod", name, {"containers": list(containers) or [sleeper], **spec}, labels or {"app": name})


def web(name: str, replicas: int, **spec: Any) -> str:
    """A Deployment of web servers, and the Service that leads to them."""
    served = container(
        WEB,
        ports=[{"name": "http", "containerPort": 8080}],
        readinessProbe={"httpGet": {"port": "http"}, "periodSeconds": 1, "timeoutSeconds": 10},
    )
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [served]},
    }
    fields = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    return manifest("Deployment", name, fields) + service(name)


def service(name: str, **spec: Any) -> str:
    """A Service on port 80, which leads to the port `http` of the pods with the label app=NAME."""
    return manifest("Service", name, {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}], **spec})


def policy(name: str, **spec: Any) -> str:
    """A NetworkPolicy."""
    return manifest("NetworkPolicy", name, spec)


def stored(kind: str, name: str, **texts: str) -> str:
    """A ConfigMap or a Secret."""
    field = "data" if kind == "ConfigMap" else "stringData"
    return "---\n" + yaml.safe_dump({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, field: texts})


def claim(name: str) -> str:
    """A PersistentVolumeClaim."""
    return manifest("PersistentVolumeClaim", name, {"accessModes": ["ReadWriteOnce"]})


def stateful(name: str, replicas: int, *containers: dict[str, Any], **spec: Any) -> str:
    """A StatefulSet, whose pods have a volume `data` each."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": list(containers)},
    }
    data = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    return manifest(
        "StatefulSet",
        name,
        {"serviceName": name, "replicas": replicas, "template": template, "volumeClaimTemplates": [data], **spec},
    )


def manifest(kind: str, name: str, spec: dict[str, Any], labels: dict[str, str] | None = None) -> str:
    """Any object with a spec."""
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return "---\n" + yaml.safe_dump({"kind": kind, "metadata": metadata, "spec": spec})
