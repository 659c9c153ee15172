"""Logs what happens beside the API: workers that join, are refused or break the protocol; secrets.

The worker gateway and the command executor declare what they call here.
"""

from collections.abc import Mapping, Sequence

from flowmesh_api.v1.request_log import LogEntry, RequestUser
from flowmesh_control.request_log.entries import (
    COMPLETE,
    SWITCHING_PROTOCOLS,
    make_entry,
    make_reference,
    make_user,
)
from flowmesh_control.request_log.request_log import RequestLog

_WORKER = "/worker"
_BAD = 400
_OK = 200


class FabricEvents:
    """Adds entries of workers and secrets to the request log."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log

    def joined(self, worker: str, pool: str, address: str) -> None:
        """As :meth:`WorkerLog.joined`."""
        self._log.add(self._entry("connect", worker, pool, SWITCHING_PROTOCOLS, address=address))

    def refused(self, worker: str, pool: str, address: str, reason: str, code: int) -> None:
        """As :meth:`WorkerLog.refused`."""
        entry = self._entry(
            "connect", worker, pool, code, address=address, message=reason, known=False
        )
        self._log.add_refusal(entry)

    def violated(self, worker: str, pool: str, problem: str) -> None:
        """As :meth:`WorkerLog.violated`."""
        self._log.add_refusal(self._entry("update", worker, pool, _BAD, message=problem))

    def secrets_used(
        self, namespace: str, attempt_id: str, worker: str, hosts: Mapping[str, Sequence[str]]
    ) -> None:
        """Logs that secrets are sent to a worker for an attempt.

        Args:
            namespace: of the run.
            attempt_id: of the attempt.
            worker: where it runs.
            hosts: by the name of each secret, the hosts to which it may be sent; never a value.
        """
        now_s = self._log.now_s()
        for name, allowed in hosts.items():
            notes = {"worker": worker, "attempt": attempt_id, "hosts": ",".join(allowed)}
            self._log.add(
                make_entry(
                    stage=COMPLETE,
                    verb="get",
                    uri=_WORKER,
                    user=make_user("flowmesh:control-plane"),
                    received_s=now_s,
                    at_s=now_s,
                    about=make_reference("secrets", namespace=namespace, name=name),
                    code=_OK,
                    annotations={f"flowmesh.dev/{key}": text for key, text in notes.items()},
                )
            )

    def _entry(
        self,
        verb: str,
        worker: str,
        pool: str,
        code: int,
        *,
        address: str = "",
        message: str = "",
        known: bool = True,
    ) -> LogEntry:
        now_s = self._log.now_s()
        name, group = f"flowmesh:worker:{worker}", f"flowmesh:pool:{pool}"
        return make_entry(
            stage=COMPLETE,
            verb=verb,
            uri=_WORKER,
            user=make_user(name, groups=(group,)) if known else RequestUser(),
            received_s=now_s,
            at_s=now_s,
            source=address,
            about=make_reference("workers", name=worker),
            code=code,
            message=message,
            annotations={"flowmesh.dev/pool": pool} if pool else {},
        )
