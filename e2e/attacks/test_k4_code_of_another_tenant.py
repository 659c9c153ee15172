"""Attacker: T4, user code of one tenant, in a pod.
Action: leaves a process and a file behind for the next tenant's code.
Must not happen: the next tenant's code runs in the same pod, or finds either of them.
"""

import pytest
from e2e.harness.code_step import code_workflow, rows_of
from e2e.harness.fabric import Fabric
from e2e.harness.user import User

LEAVES = """
    import os, time
    def main():
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        try:
            open("/tmp/left", "w").write("of the first tenant")
        except OSError:
            pass
        return [{"pod": os.uname().nodename}]
"""
LOOKS = """
    import os
    def main(turn):
        def attempt(what):
            try:
                return what()
            except OSError as e:
                return type(e).__name__
        processes = attempt(lambda: [p for p in os.listdir("/proc") if p.isdigit()])
        file = attempt(lambda: open("/tmp/left").read())
        return [{"pod": os.uname().nodename, "file": file, "processes": processes}]
"""


# In make test on one machine: tests/attacks/test_k4_code_of_another_tenant.py.
@pytest.mark.full
def test_code_of_two_tenants_never_shares_a_pod(
    fabric: Fabric, attacked_pool: str, attacker: User, owner: User
) -> None:
    fabric.submit(attacker.namespace, "leaves", code_workflow(LEAVES))
    fabric.submit(owner.namespace, "looks", code_workflow(LOOKS, args={"turn": "owner"}))
    fabric.completed(attacker.namespace, "leaves")
    fabric.completed(owner.namespace, "looks", 180)
    fabric.submit(attacker.namespace, "looks", code_workflow(LOOKS, args={"turn": "attacker"}))
    fabric.completed(attacker.namespace, "looks")
    [left], [owners], [own] = (
        rows_of(attacker, "leaves"), rows_of(owner, "looks"), rows_of(attacker, "looks")
    )  # fmt: skip
    pods = {pod["metadata"]["name"] for pod in fabric.workers(attacked_pool)}
    assert {left["pod"], owners["pod"]} == pods
    assert own["pod"] == left["pod"], "its own code finds the worker that serves it"
    for found in (owners, own):
        assert found["file"] in ("FileNotFoundError", "PermissionError")
        assert found["processes"] == "PermissionError"
