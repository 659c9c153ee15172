"""Static keys of callers: each may call one service, and nothing else.

OpenAI's clients have a static key and cannot renew a token of the cluster. Only a key's hash is
stored, with the service, so that it ends with the service.
"""

import secrets
from collections.abc import Callable, Iterable

import msgspec

from flowmesh_api.v1.services import ServiceTokenCreated, ServiceTokenShown
from flowmesh_control.errors import ConflictError, NotFoundError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.service_records import ServiceRecord, StoredToken
from flowmesh_control.serving.registry import ServiceRegistry
from flowmesh_core.protocol.router_services import (
    RouterServices,
    ServiceEntry,
    ServiceToken,
    token_hash,
)

TOKENS_MAX = 100
"""Tokens of one service that have not expired."""
_BYTES = 24
_ID_BYTES = 4


class ServiceTokens:
    """Creates, lists and revokes the tokens of services, and lists them for routers."""

    def __init__(
        self,
        registry: ServiceRegistry,
        clock: Clock,
        authorities: dict[str, str],
        denied_workers: Iterable[str] = (),
        epoch: int = 0,
    ) -> None:
        """Keeps the last list for routers, by which it counts their versions.

        Args:
            registry: has the services.
            clock: Unix time in seconds.
            authorities: of link certificates, for the routers.
            denied_workers: that may not join, for the routers.
            epoch: of this leader.
        """
        self._listed = RouterServices(epoch=epoch)
        self._denied_workers = tuple(sorted(denied_workers))
        self._registry = registry
        self._clock = clock
        self._authorities = authorities

    async def create(self, namespace: str, name: str, valid_s: float) -> ServiceTokenCreated:
        """Creates a token, which is shown this once.

        Args:
            namespace: of the service.
            name: the service.
            valid_s: seconds until it expires; 0 for never.

        Raises:
            NotFoundError: there is no such service.
            ConflictError: it has too many tokens.
        """
        now_s = self._clock()
        token = f"fm-{secrets.token_urlsafe(_BYTES)}"
        expires_s = now_s + valid_s if valid_s else 0.0
        stored = StoredToken(secrets.token_hex(_ID_BYTES), token_hash(token), now_s, expires_s)

        def added(service: ServiceRecord) -> ServiceRecord:
            valid = tuple(t for t in service.tokens if not t.has_expired(now_s))
            if len(valid) >= TOKENS_MAX:
                raise ConflictError(
                    f"service {service.id} has {len(valid)} tokens, of at most {TOKENS_MAX}",
                    where="tokens",
                    remedy="revoke one: `fmesh token list` shows them",
                )
            return msgspec.structs.replace(service, tokens=(*valid, stored))

        await self._registry.change(namespace, name, added)
        return ServiceTokenCreated(stored.id, token, expires_s)

    def list(self, namespace: str, name: str) -> tuple[ServiceTokenShown, ...]:
        """Returns the tokens of a service, without what they are.

        Raises:
            NotFoundError: there is no such service.
        """
        service = self._registry.get(namespace, name)
        return tuple(ServiceTokenShown(t.id, t.created_s, t.expires_s) for t in service.tokens)

    async def revoke(self, namespace: str, name: str, token_id: str) -> None:
        """Deletes a token; routers refuse it from their next look, within about a second.

        Raises:
            NotFoundError: there is no such service or token.
        """

        def without(service: ServiceRecord) -> ServiceRecord:
            remaining = tuple(t for t in service.tokens if t.id != token_id)
            if len(remaining) == len(service.tokens):
                raise NotFoundError(
                    f"service {service.id} has no token {token_id!r}",
                    where="tokens",
                    remedy="`fmesh token list` shows them",
                )
            return msgspec.structs.replace(service, tokens=remaining)

        await self._registry.change(namespace, name, without)

    def for_routers(self, entry: Callable[[ServiceRecord], ServiceEntry]) -> RouterServices:
        """Returns all services with their valid tokens, as routers need them.

        Args:
            entry: returns what routers know of a service, without tokens.
        """
        now_s, last = self._clock(), self._listed
        listed = RouterServices(
            tuple(
                msgspec.structs.replace(
                    entry(service),
                    tokens=tuple(
                        ServiceToken(t.hash, service.namespace, t.expires_s)
                        for t in service.tokens
                        if not t.has_expired(now_s)
                    ),
                )
                for service in self._registry.all()
            ),
            self._authorities,
            self._denied_workers,
            last.epoch,
            last.version,
        )
        if listed != last:
            self._listed = msgspec.structs.replace(listed, version=last.version + 1)
        return self._listed
