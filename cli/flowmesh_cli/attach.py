"""Connects a command to a fabric: joins the one that serves the state folder, or starts one.

:func:`attach` joins a fabric or starts one with workers (``fmesh run``); :func:`need` requires a
running fabric; :func:`look` is for queries, which a fabric without workers answers from the store
where none is running.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.owner import (
    JoinLock,
    OwnerRecord,
    claim,
    current,
    join,
    no_other_users,
)
from flowmesh_cli.connection.state_dir import StateDir, state_dir
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.options import LocalOptions

if TYPE_CHECKING:
    from flowmesh_cli.local.fabric import LocalFabric

_TIMEOUT_S = 60.0
_POLL_S = 0.05
_START = "start one with `fmesh up`, or use `fmesh run`"


class FabricSession:
    """A local fabric that this process uses, and may own."""

    def __init__(self, state: StateDir, options: LocalOptions, namespace: str) -> None:
        """Connects at once; callers use :func:`attach`."""
        self._namespace = namespace
        self.state = state
        self._options = options
        self.fabric: LocalFabric | None = None
        self._joined: JoinLock | None = None
        self.http = ApiClient.at("", "")
        self._connect()

    @property
    def is_owner(self) -> bool:
        """Whether the fabric runs in this process."""
        return self.fabric is not None

    def reconnect(self) -> None:
        """Reconnects after the owner died; this process may become the owner.

        Raises:
            FabricUnavailableError: this process owns the fabric, and it ended by itself.
        """
        if self.fabric is not None:
            raise FabricUnavailableError(self.http.url, self.fabric.failure or "it has stopped")
        self._leave()
        self._connect()

    def is_last(self) -> bool:
        """Returns whether no other process uses the fabric; after True, none can join it."""
        if self.fabric is None:
            return True
        if self._joined is not None:
            self._joined.release()
            self._joined = None
        return self.fabric.close_to_others(no_other_users(self.state))

    def close(self) -> None:
        """Disconnects; an owner ends its workers and the control plane."""
        self._leave()
        if self.fabric is not None:
            self.fabric.stop()

    def abandon(self) -> None:
        """Kills the workers, for a process that exits immediately."""
        if self.fabric is not None:
            self.fabric.kill()

    def _leave(self) -> None:
        self.http.close()
        if self._joined is not None:
            self._joined.release()
            self._joined = None

    def _connect(self) -> None:
        end = time.monotonic() + _TIMEOUT_S
        while not (self._own() or self._join()):
            if time.monotonic() > end:
                raise CliError(
                    "another fmesh has locked the state folder and does not answer",
                    ExitCode.NO_FABRIC,
                    where=str(self.state.owner),
                    remedy="end the process whose pid is in the file, then try again",
                )
            time.sleep(_POLL_S)

    def _talk(self, owner: OwnerRecord) -> None:
        self.http = ApiClient.at(owner.url, owner.token)
        self.http.namespace = self._namespace

    def _own(self) -> bool:
        ownership = claim(self.state, to_read=self._options.serves == "read")
        if ownership is None:
            return False
        from flowmesh_cli.local.fabric import LocalFabric  # noqa: PLC0415 - loads the control plane

        self.fabric = LocalFabric(self.state, ownership, self._options)
        try:
            owner = self.fabric.start()
        except KeyboardInterrupt:
            self.fabric.kill()
            raise
        self._joined = join(self.state)
        self._talk(owner)
        return True

    def _join(self) -> bool:
        joined = join(self.state)
        owner = current(self.state) if joined is not None else None
        serves = owner is not None and (owner.serves != "read" or self._options.serves == "read")
        if joined is None or owner is None or not owner.url or not serves:
            if joined is not None:
                joined.release()
            return False
        self._talk(owner)
        try:
            self.http.call("GET", "/v1/fabric")
        except FabricUnavailableError:
            joined.release()
            return False
        self._joined = joined
        return True


class ReachableFabric(Protocol):
    """A fabric that this process uses: local or a cluster's."""

    http: ApiClient

    @property
    def is_owner(self) -> bool:
        """Whether the fabric ends with this process."""
        ...

    def reconnect(self) -> None:
        """Reconnects after the fabric stopped answering.

        Raises:
            FabricUnavailableError: it did not answer in time.
        """
        ...

    def is_last(self) -> bool:
        """Returns whether no other process uses the fabric that this process serves."""
        ...

    def close(self) -> None:
        """Disconnects."""
        ...

    def abandon(self) -> None:
        """Kills the workers of a fabric that this process serves."""
        ...


@contextlib.contextmanager
def attach(place: Target, options: LocalOptions) -> Iterator[ReachableFabric]:
    """Yields a fabric with workers: a cluster's, the running local one, or a new one."""
    if not place.is_cluster:
        with attach_here(place.state_dir, options, place.namespace) as here:
            yield here
        return
    from flowmesh_cli.cluster.gateway import (  # noqa: PLC0415 - a laptop needs none of it
        ClusterSession,
    )

    session = ClusterSession(place)
    try:
        yield session
    finally:
        session.close()


@contextlib.contextmanager
def attach_here(
    folder: Path | None, options: LocalOptions, namespace: str = ""
) -> Iterator[FabricSession]:
    """Yields the running fabric of a state folder, or a new one that this process owns."""
    state = state_dir(folder)
    state.prepare()
    session = FabricSession(state, options, namespace)
    try:
        yield session
    finally:
        session.close()


@contextlib.contextmanager
def require_fabric(place: Target) -> Iterator[ApiClient]:
    """Yields a client of the running fabric.

    Raises:
        CliError: no fabric is running.
    """
    if place.is_cluster:
        with attach(place, LocalOptions(serves="read")) as session:
            yield session.http
        return
    state = state_dir(place.state_dir)
    owner = running(state)
    if owner is None:
        raise CliError(_not_running(state), ExitCode.NO_FABRIC, remedy=_START)
    joined = join(state)
    http = ApiClient.at(owner.url, owner.token)
    try:
        yield http
    finally:
        http.close()
        if joined is not None:
            joined.release()


@contextlib.contextmanager
def query_fabric(place: Target) -> Iterator[ApiClient]:
    """Yields a client for queries: of the running fabric, or of one without workers.

    Raises:
        CliError: the state folder has never been used.
    """
    state = state_dir(place.state_dir)
    if not place.is_cluster and not state.exists():
        raise CliError(
            "nothing has run here yet",
            ExitCode.NO_FABRIC,
            where=str(state.path),
            remedy="start with `fmesh run FILE`, or name another folder with --state-dir",
        )
    with attach(place, LocalOptions(serves="read")) as session:
        yield session.http
        while not session.is_last():  # another command is using this process's fabric
            time.sleep(_POLL_S)


def unserved_text(place: Target) -> str:
    """Returns that nothing continues unfinished runs, and the remedy; empty where a fabric runs."""
    state = state_dir(place.state_dir)
    if place.is_cluster or running(state) is not None:
        return ""
    return f"{_not_running(state)}, so unfinished runs wait: {_START}"


def running(state: StateDir) -> OwnerRecord | None:
    """Returns the owner that serves the folder with workers, or None."""
    if not state.exists():
        return None
    owner = current(state)
    return owner if owner is not None and owner.url and owner.serves != "read" else None


def _not_running(state: StateDir) -> str:
    return f"no fabric is running on {state.path}"
