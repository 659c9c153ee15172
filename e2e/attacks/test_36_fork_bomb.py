"""Attacker: T4, user code in a pod.
Action: creates processes without end, each in a session of its own.
Must not happen: more than 64 of them run at once, one stays, or the pod or its worker restarts.
"""

from e2e.harness.code_step import code_workflow, rows_of
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Json
from e2e.harness.user import User

PROCESSES_MAX = 64
BOMB = """
    import os, time
    def main():
        count = 0
        while count < 1000:
            try:
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(600)
            except OSError:
                break
            count += 1
        return [{"count": count, "pod": os.uname().nodename}]
"""
HONEST = """
    import os
    def main():
        return [{"pod": os.uname().nodename, "sum": sum(range(10))}]
"""


def restarts(fabric: Fabric, pool: str) -> dict[str, int]:
    """Returns how often each container of the pool's pods was restarted."""
    return {
        f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
        for pod in fabric.workers(pool)
        for status in pod["status"].get("containerStatuses", ())
    }


def running(fabric: Fabric, pod: str) -> str:
    """Returns the command lines of the container of users' code."""
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo"
    return fabric.kube.run(
        "exec", f"--namespace={NAMESPACE}", pod, "--container=code", "--", "sh", "-c", look
    )


def message(status: Json) -> str:
    return str([step.get("message", "") for step in status["steps"]])


def test_a_fork_bomb_ends_with_its_own_step(
    fabric: Fabric, attacked_pool: str, attacker: User
) -> None:
    fabric.submit(attacker.namespace, "bomb", code_workflow(BOMB, memory_mib=256))
    status = fabric.finished(attacker.namespace, "bomb", 180)
    if status["phase"] == "Succeeded":
        [found] = rows_of(attacker, "bomb")
        assert found["count"] <= PROCESSES_MAX
    else:
        assert "processes" in message(status), status
    # The same worker serves the next call, and nothing of the first is left.
    fabric.submit(attacker.namespace, "honest", code_workflow(HONEST))
    fabric.completed(attacker.namespace, "honest")
    [found] = rows_of(attacker, "honest")
    assert found["sum"] == 45
    assert set(restarts(fabric, attacked_pool).values()) == {0}
    assert running(fabric, found["pod"]).count("engines.code") <= 3
