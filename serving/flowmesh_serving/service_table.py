"""Which services a router offers to whom, as it was last read from its file or control plane."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from flowmesh_core.catalog.adapter_ports import split_model
from flowmesh_core.protocol.router_services import (
    RouterServices,
    ServiceEntry,
    ServiceToken,
    token_hash,
)
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.errors import invoke_path
from flowmesh_serving.request_schemas import RequestSchemas


class Caller(NamedTuple):
    """Who sends a request, by its token, and the service that it calls."""

    service: ServiceEntry
    namespace: str


class ServiceTable:
    """The services and their tokens; empty before the first :meth:`use`.

    Attributes:
        is_known: whether they have been read.
        tenants: the namespaces that may call any of them.
        requests: the schemas of requests to them.
    """

    def __init__(self, *, takes_users: bool = False) -> None:
        """Has no services yet.

        Args:
            takes_users: whether users of Kubernetes call services too: then any namespace with a
                service may have callers, also one without tokens.
        """
        self._takes_users = takes_users
        self._models: dict[str, dict[str, ServiceEntry]] = {}
        self._tokens: dict[str, tuple[ServiceEntry, ServiceToken]] = {}
        self._callers: dict[str, tuple[Caller, float]] = {}
        self._services: dict[str, ServiceEntry] = {}
        self._tenants: dict[str, tuple[str, ...]] = {}
        self.tenants: tuple[str, ...] = ()
        self.is_known = False
        self.requests = RequestSchemas()
        self._graphs: dict[str, LoadedGraph] = {}
        self._invoked: dict[str, str] = {}

    @property
    def names(self) -> Collection[str]:
        """All services, as ``namespace/name``."""
        return self._services.keys()

    def use(self, listed: RouterServices) -> None:
        """Replaces all services."""
        self._graphs = {
            s.service: LoadedGraph(s.graph, s.keys) for s in listed.services if s.graph is not None
        }
        self._invoked = {invoke_path(service): service for service in self._graphs}
        self.requests.use(listed.services)
        self._callers = {}
        self._tokens = {t.hash: (s, t) for s in listed.services for t in s.tokens}
        self._services = {s.service: s for s in listed.services}
        self._models = _models(listed.services)
        self._tenants = {s.service: self._callers_of(s) for s in listed.services}
        self.tenants = tuple(dict.fromkeys(n for names in self._tenants.values() for n in names))
        self.is_known = True

    def _callers_of(self, entry: ServiceEntry) -> tuple[str, ...]:
        own = (namespace_of(entry),) if self._takes_users else ()
        return tuple(dict.fromkeys((*own, *(t.namespace for t in entry.tokens))))

    def models_of(self, namespace: str) -> Mapping[str, ServiceEntry]:
        """Returns the services of a namespace by their model in OpenAI's API."""
        return self._models.get(namespace, {})

    def offering(self, namespace: str, name: str) -> ServiceEntry | None:
        """Returns the service of a namespace that has a model, or a model with an adapter."""
        models = self.models_of(namespace)
        return models.get(name) or models.get(split_model(name)[0])

    def entry(self, service: str) -> ServiceEntry | None:
        """Returns a service; None where there is none of that name."""
        return self._services.get(service)

    def tenants_of(self, service: str) -> tuple[str, ...]:
        """Returns the namespaces that may call a service."""
        return self._tenants.get(service, ())

    def is_placed(self, service: str, replica_id: str, worker: str) -> bool:
        """Returns whether a worker may have this replica of a service."""
        found = self._services.get(service)
        if found is None:
            return False
        return found.placed is None or found.placed.get(replica_id) == worker

    def graph(self, service: str) -> LoadedGraph | None:
        """Returns the stages of a service; None for one without."""
        return self._graphs.get(service)

    def invoked(self, path: str) -> str | None:
        """Returns the service with stages that takes requests at a path; None where none does."""
        return self._invoked.get(path)

    def caller(self, token: str) -> Caller | None:
        """Returns whose token this is; None for an unknown or expired one.

        A valid token is hashed once until the services change: there are no more entries than
        tokens, whatever is sent.
        """
        known = self._callers.get(token)
        if known is None:
            found = self._tokens.get(token_hash(token))
            if found is None:
                return None
            service, listed = found
            known = Caller(service, listed.namespace), listed.expires_s
            self._callers[token] = known
        caller, expires_s = known
        return None if expires_s and expires_s <= time.time() else caller


def namespace_of(entry: ServiceEntry) -> str:
    """Returns the namespace of a service."""
    return entry.service.partition("/")[0]


def _models(entries: tuple[ServiceEntry, ...]) -> dict[str, dict[str, ServiceEntry]]:
    """Returns services by namespace and model; of several with one model, the oldest.

    One that answers requests of OpenAI's API comes before one with stages that does not.
    """
    found: dict[str, dict[str, ServiceEntry]] = {}
    for entry in sorted(entries, key=lambda e: (not _answers_openai(e), e.created_s, e.service)):
        found.setdefault(namespace_of(entry), {}).setdefault(entry.model, entry)
    return found


def _answers_openai(entry: ServiceEntry) -> bool:
    return entry.graph is None or entry.chat is not None
