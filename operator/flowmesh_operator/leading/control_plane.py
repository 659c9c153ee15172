"""The control plane that the leader runs, made of the operator's settings and ports."""

import secrets

from flowmesh_control.certificate import Certificate
from flowmesh_control.control import ControlPlane
from flowmesh_control.joining import StaticTokens
from flowmesh_control.plugins import load_catalog
from flowmesh_control.settings import ControlSettings
from flowmesh_core.run.settings import Settings
from flowmesh_operator.access.secrets import NamespaceSecrets
from flowmesh_operator.api import Api
from flowmesh_operator.settings import OperatorSettings
from flowmesh_store.store import Store

ANY_POOL = "*"


def make_control_plane(
    settings: OperatorSettings, store: Store, api: Api, owner: str
) -> ControlPlane:
    """One leadership's control plane, not started.

    Args:
        settings: the operator's.
        store: the bucket.
        api: of the leader.
        owner: who leads, for people who read ``epochs/``.
    """
    fixed = {ANY_POOL: settings.worker_token} if settings.worker_token else {}
    return ControlPlane(
        store,
        ControlSettings(machine=Settings(sync_window_s=settings.sync_window_s)),
        catalog=load_catalog(),
        master_key=settings.master_key,
        api_token=settings.api_token or secrets.token_urlsafe(32),
        tokens=StaticTokens(fixed),
        secrets=NamespaceSecrets(api, settings),
        certificate=Certificate.of(settings.tls_cert, settings.tls_key),
        owner=owner,
    )
