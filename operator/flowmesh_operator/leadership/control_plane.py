"""Builds the leader's control plane from the operator's settings and Kubernetes adapters."""

from functools import partial

from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.settings import HANG_S, ControlSettings
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.settings import Settings
from flowmesh_operator.access.secrets import NamespaceSecrets
from flowmesh_operator.access.users import ReviewedUsers
from flowmesh_operator.access.worker_tokens import ReviewedWorkerTokens
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.pools.trust import PoolTrusts
from flowmesh_operator.settings import OperatorSettings
from flowmesh_operator.workflows.deletion_detector import withdrawn
from flowmesh_store.store import Store

DAY_S = 86400.0
REVIEW_S = 4.0
"""Timeout of a token review: a user or worker waits for the answer."""


def make_control_plane(
    settings: OperatorSettings, store: Store, api: KubeClient, mirror: InformerCache, owner: str
) -> ControlPlane:
    """Returns the control plane of one leadership, not started.

    Args:
        settings: the operator's settings.
        store: the bucket or directory.
        api: the leader's fenced client.
        mirror: the informer cache; read for namespaces' labels, completed at recovery.
        owner: the leader's identity, recorded in ``epochs/``.

    Raises:
        FlowMeshError: the file with the routers' certificates cannot be read.
    """
    return ControlPlane(
        store,
        ControlSettings(
            machine=Settings(
                sync_window_s=settings.sync_window_s,
                pools_are_declared=True,
                result_ttl_s=settings.result_days * DAY_S,
            ),
            objects=True,
            sandboxed_evaluators=True,
            metrics_open=settings.metrics_open,
            request_log=settings.request_log,
            request_log_ttl_s=settings.request_log_days * DAY_S,
            collection=CollectionSettings(
                interval_s=settings.collect_every_s,
                grace_s=settings.collect_grace_s,
                bytes_max=settings.store_max,
                result_ttl_s=settings.result_days * DAY_S,
                run_ttl_s=settings.run_days * DAY_S,
            ),
            hang_s=HANG_S,
            connections_per_peer=settings.connections_per_peer,
            connections_max=settings.connections_max,
            routers=(settings.router_hubs,) if settings.router_hubs else (),
            router_ca=_router_ca(settings),
            router_url=settings.router_url,
            openai_engine=settings.openai_engine,
        ),
        catalog=load_catalog(),
        key_ring=settings.key_ring,
        users=ReviewedUsers(api.with_single_try(REVIEW_S), namespace=settings.namespace),
        tokens=ReviewedWorkerTokens(
            api.with_single_try(REVIEW_S), namespace=settings.namespace, fixed=settings.worker_token
        ),
        secrets=NamespaceSecrets(api, settings),
        certificate=TlsCertificate.of(settings.tls_cert, settings.tls_key),
        labels=lambda namespace: mirror.namespaces.get(namespace, {}),
        withdrawn=partial(withdrawn, api, mirror),
        trust_of=PoolTrusts(mirror, settings.namespace),
        owner=owner,
        state_folder=settings.state_folder,
    )


def _router_ca(settings: OperatorSettings) -> str:
    """Returns the certificates with which hubs verify routers; empty where there are none."""
    if settings.router_ca is None:
        return ""
    try:
        return settings.router_ca.read_text(encoding="utf-8")
    except OSError as e:
        raise FlowMeshError(
            f"the certificates of routers cannot be read: {e.strerror}",
            where=f"FLOWMESH_ROUTER_CA={settings.router_ca}",
            remedy="mount ca.crt of the routers' Secret there",
        ) from e
