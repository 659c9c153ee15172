"""Compares the chart's rights with their use: none is missing, and none is unused.

The API server's audit log has all requests of the operator and the Job of the definitions since the
cluster's start. This scenario repeats what the other scenarios may not have used.
"""

from collections.abc import Callable
from pathlib import Path

from e2e.harness.fabric import NAMESPACE, RELEASE, Fabric, workflow
from e2e.harness.kube import condition, until
from e2e.harness.machine import Machine
from e2e.harness.pools import pool
from e2e.harness.rights import Asked, Right, granted
from e2e.harness.user import User

HERE = f"--namespace={NAMESPACE}"
BY_THEIR_OWNERS = {Right("flowmesh-operator", "get", "", "configmaps")}
"""What is asked for in users' namespaces, where Roles of theirs grant it or not."""
OF_AN_EARLIER_RELEASE = {
    Right("flowmesh-operator", "list", "keda.sh", kind)
    for kind in ("scaledobjects", "triggerauthentications")
}
"""Where an upgrade takes KEDA's rights away, who leads until its end may look for it once more."""
GONE_SOON = {
    "ttlSecondsAfterFinished": 1,
    "inputs": {"rows": {"configMap": {"name": "rows", "key": "rows.jsonl"}}},
    "steps": [{"name": "count", "uses": "data.sql", "inputs": {"t": "inputs.rows"},
               "with": {"query": "select count(*) as n from t"}}],
    "outputs": {"count": "count.rows"},
}  # fmt: skip


def test_every_right_is_used_and_none_is_missing(
    fabric: Fabric, machine: Machine, tenant: Callable[[], str], tmp_path: Path,
    print_line: Callable[[str], None],
) -> None:  # fmt: skip
    all_of_them(fabric, tenant(), tmp_path)
    given = granted((fabric.helm("get", what, RELEASE).stdout for what in ("manifest", "hooks")),
                    NAMESPACE)  # fmt: skip
    idle: list[str] = []

    def needed() -> bool:
        idle[:] = sorted(map(str, given - Asked(NAMESPACE).used()))
        return not idle

    try:
        until(needed, "every right of the chart is used", 20)
    except AssertionError as e:
        raise AssertionError(f"{e}; never used: {', '.join(idle)}") from None
    asked = Asked(NAMESPACE)
    # A new API server refuses granted requests for a moment too.
    missing = asked.refused() - given - BY_THEIR_OWNERS - OF_AN_EARLIER_RELEASE
    assert sorted(map(str, missing)) == []
    assert {right.account for right in asked.used()} == {right.account for right in given}
    print_line(f"{len(given)} rights, each of them used; nothing else was asked for")


def all_of_them(fabric: Fabric, team: str, folder: Path) -> None:
    """Makes the operator and the chart's Job do everything that they can do."""
    run = fabric.kube.run
    # The Job before an upgrade creates a missing kind.
    run("delete", "crd", "flowmeshcachepolicies.flowmesh.dev")
    fabric.install("operator.podAnnotations.rights=used")
    # A deferred workflow is read again when it can be accepted, and deletes itself.
    run("create", "configmap", "rows", "-n", team, '--from-literal=rows.jsonl={"a": 1}')
    fabric.kube.apply(workflow(team, "soon-gone", GONE_SOON))
    refused = "the ConfigMap may not be read"
    until(lambda: condition(fabric.look(team, "soon-gone"), "Accepted").get("reason")
          == "Unreadable", refused)  # fmt: skip
    run("create", "role", "reads", "-n", team, "--verb=get", "--resource=configmaps",
        "--resource-name=rows")  # fmt: skip
    run("create", "rolebinding", "reads", "-n", team, "--role=reads",
        f"--serviceaccount={NAMESPACE}:flowmesh-operator")  # fmt: skip
    until(lambda: not fabric.look(team, "soon-gone"), "it has run and is gone", 120)
    spec = fabric.kube.get("fmwp", "thin", HERE)["spec"]
    own = "flowmesh-pool-rights"
    with pool(fabric, "rights", {**spec, "autoscaling": {"mode": "hpa"}}):
        until(lambda: bool(fabric.kube.get("hpa", own, HERE)), "the pool has an autoscaler")
        other = '{"spec": {"autoscaling": {"mode": "backlog"}}}'
        run("patch", "fmwp", "rights", HERE, "--type=merge", f"--patch={other}")
        until(lambda: not fabric.kube.get("hpa", own, HERE), "it has none any more")
    user = User(fabric, team, folder)
    user.begin()
    user.answer("status", "--all")
