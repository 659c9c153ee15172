"""Runs a local control plane: one store, one worker token, secrets from the environment."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowmesh_cli.local.llm_settings import check_llm_settings
from flowmesh_cli.local.model_aliases import model_aliases
from flowmesh_cli.local.options import POOL
from flowmesh_cli.local.request_log import logs_requests
from flowmesh_cli.local.router import hub_socket
from flowmesh_cli.local.secrets import EnvironmentSecrets
from flowmesh_control.auth.master_key import load_key_ring, new_ring
from flowmesh_control.auth.users import StaticUsers
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.settings import CONNECTIONS_MAX, HANG_S, ControlSettings
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import StoreAccessError, StoreError, StoreFullError
from flowmesh_core.machine.settings import Settings
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_store.store import open_store

UNPLACEABLE_AFTER_S = 20.0
"""Local pools do not grow, so a step that no worker can run fails soon instead of waiting."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address of the control plane, and the tokens of its users and workers."""

    host: str
    port: int
    token: str = field(repr=False)
    worker_token: str = field(repr=False)


async def serve_control(
    folder: Path,
    address: ListenAddress,
    *,
    dispatches: bool,
    weights: Mapping[str, float],
    collection: CollectionSettings,
    ready: Callable[[str, bool], None],
    stop: asyncio.Event,
) -> None:
    """Runs the control plane on a state folder until ``stop`` is set.

    Args:
        folder: the state folder, which is the store too.
        address: the address and tokens.
        dispatches: whether there will be workers; without them no step fails as unplaceable, and a
            folder that cannot be written is opened read-only.
        weights: weights of tenants in the fair share.
        collection: when the store is collected, and what stays.
        ready: called with the address, and whether the folder is read-only.
        stop: ends the control plane.

    Raises:
        FlowMeshError: it cannot start, or another control plane took over the store.
    """
    patience_s = UNPLACEABLE_AFTER_S if dispatches else 0.0
    # All workers are the owner's: one that breaks the protocol is logged and goes on.
    machine = Settings(
        unplaceable_after_s=patience_s,
        tenant_weights=weights,
        violations_max=0,
        result_ttl_s=collection.result_ttl_s,
    )
    if dispatches:
        check_llm_settings(os.environ)
    logs = logs_requests(os.environ)
    aliases = model_aliases(os.environ)
    store = open_store(folder, grace_s=collection.grace_s)

    def make(ring: KeyRing) -> ControlPlane:
        return ControlPlane(
            store,
            ControlSettings(
                machine=machine,
                hang_s=HANG_S,
                request_log=logs,
                collection=collection,
                model_aliases=aliases,
                connections_per_peer=CONNECTIONS_MAX,  # all clients of a laptop have one address
                routers=(f"unix:{hub_socket(folder)}",),
            ),
            catalog=load_catalog(),
            key_ring=ring,
            users=StaticUsers(address.token),
            tokens=StaticWorkerTokens({POOL: address.worker_token}),
            secrets=EnvironmentSecrets(),
            state_folder=folder,
        )

    refusal: StoreError | None
    ring, refusal = _key_ring(folder, may_read_only=not dispatches)
    has_keys = refusal is None
    plane = make(ring)
    try:
        try:
            if refusal is not None:
                raise refusal
            await plane.start(address.host, address.port)
        except (StoreAccessError, StoreFullError) as e:
            if dispatches:
                raise
            await plane.stop()
            plane, refusal = make(ring), e
            await plane.start_reading(e, address.host, address.port, checks_seals=has_keys)
        ready(plane.url, refusal is not None)
        await _first(plane.wait(), stop.wait())
    finally:
        await plane.stop()
        store.close()


def _key_ring(folder: Path, *, may_read_only: bool) -> tuple[KeyRing, StoreAccessError | None]:
    """Returns the folder's master keys; a substitute and the error if another user owns them."""
    try:
        return load_key_ring(folder), None
    except StoreAccessError as e:
        if not may_read_only:
            raise
        return new_ring(), e


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Waits for the first to end, cancels the others, and raises its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for task in done:
        task.result()
