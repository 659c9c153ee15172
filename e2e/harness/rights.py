"""The rights of the chart's service accounts, and the requests that they made.

The rights come from the installed chart, the requests from the API server's audit log.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml
from e2e.cluster.paths import AUDIT
from e2e.harness.kube import Json

_CREATED = 201
_DECISION = "authorization.k8s.io/decision"


class Right(NamedTuple):
    """A verb on a resource; a subresource follows a slash."""

    account: str
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.account}: {self.verb} {resource}"


def granted(manifests: Iterable[str], namespace: str) -> set[Right]:
    """Returns every right that manifests grant to the service accounts of a namespace."""
    objects = [o for text in manifests for o in yaml.safe_load_all(text) if o]
    roles = {(o["kind"], o["metadata"]["name"]): o["rules"] for o in objects
             if o["kind"] in ("Role", "ClusterRole")}  # fmt: skip
    return {
        right
        for binding in objects
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
        if subject["kind"] == "ServiceAccount" and subject["namespace"] == namespace
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for right in _of(rule, subject["name"])
    }


def _of(rule: Json, account: str) -> Iterator[Right]:
    for group in rule.get("apiGroups", ()):
        for resource in rule["resources"]:
            yield from (Right(account, verb, group, resource) for verb in rule["verbs"])


class Asked:
    """All requests of a namespace's service accounts since the cluster's start."""

    def __init__(self, namespace: str) -> None:
        """Reads the current log."""
        start = f"system:serviceaccount:{namespace}:"
        self._events = [event for event in _events() if event["user"]["username"].startswith(start)]
        self._start = len(start)

    def used(self) -> set[Right]:
        """Returns the rights that were used; applying a missing object also uses create."""
        found = set()
        for event in self._events:
            if event.get("annotations", {}).get(_DECISION) != "allow" or "objectRef" not in event:
                continue
            right = self._right(event)
            found.add(right)
            if right.verb == "patch" and event["responseStatus"].get("code") == _CREATED:
                found.add(right._replace(verb="create"))
        return found

    def refused(self) -> set[Right]:
        """Returns the refused requests."""
        return {
            self._right(event)
            for event in self._events
            if event.get("annotations", {}).get(_DECISION) == "forbid"
        }

    def _right(self, event: Json) -> Right:
        about: dict[str, Any] = event.get("objectRef") or {"resource": event["requestURI"]}
        resource, part = about["resource"], about.get("subresource")
        return Right(
            event["user"]["username"][self._start :],
            event["verb"],
            about.get("apiGroup", ""),
            f"{resource}/{part}" if part else resource,
        )


def _events() -> Iterator[Json]:
    for file in sorted(AUDIT.glob("audit*.log")):
        for line in file.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # a partial line: it is being written, or the API server was killed
