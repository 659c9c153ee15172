"""Callers with a token of Kubernetes: which service of their namespace a request calls.

Such a token calls all services of a namespace, so the request says which one: by its path, or by
its model. A model is in the body. Where the namespace has several services the body is read before
the request is admitted; how many are, at once, is bounded and shared among namespaces.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator

import msgspec
from aiohttp import web

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import OpenAiError, invalid_value, missing_parameter
from flowmesh_core.serving.route.admission import OnLate, ServiceLoad, admit
from flowmesh_serving.callers.caller_reviews import CallerReviews
from flowmesh_serving.errors import (
    body_too_large,
    body_too_slow,
    may_not_call,
    too_many_requests,
    unauthorized,
    unknown_model,
    unknown_service,
)
from flowmesh_serving.http.request_body import whole_body
from flowmesh_serving.http.request_headers import bearer_token
from flowmesh_serving.service_table import Caller, ServiceTable, namespace_of

BODIES_MAX, BODIES_UNSHARED = 64, 16
"""Bodies that are read before admission, at once; above the second number namespaces share."""
_ENDLESS_S = float("inf")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PROJECT = "OpenAI-Project"
_JWT_PARTS = 3


class _Model(msgspec.Struct):
    """The part of a body that names its model."""

    model: str = ""


_models = msgspec.json.Decoder(_Model)


class KubernetesCallers:
    """Finds the callers of requests whose token is not one of a service."""

    def __init__(
        self,
        reviews: CallerReviews | None,
        services: ServiceTable,
        *,
        body_bytes: int,
        body_s: float,
    ) -> None:
        """Reads no bodies yet.

        Args:
            reviews: of tokens; None where no control plane can be asked.
            services: of all namespaces.
            body_bytes: the largest body.
            body_s: how long a client may take to send it.
        """
        self._reviews = reviews
        self._services = services
        self._body_bytes = body_bytes
        self._body_s = body_s
        self._bodies: Counter[str] = Counter()

    async def of_model(self, request: web.Request) -> Caller:
        """Returns the caller of a request of OpenAI's API.

        Raises:
            OpenAiError: the token is not valid, has no right, or there is no such model.
        """
        models = self._services.models_of(namespace := await self._namespace(request))
        if len(models) == 1:  # the model is compared when the request is admitted
            return Caller(next(iter(models.values())), namespace)
        with self._reading(namespace):
            name = await self._model(request)
        entry = self._services.offering(namespace, name)
        if entry is None:
            raise unknown_model(name)
        return Caller(entry, namespace)

    async def of_service(self, request: web.Request, service: str) -> Caller:
        """Returns the caller of a request whose path names its service.

        Raises:
            OpenAiError: the token is not valid, has no right, or there is no such service.
        """
        entry = self._services.entry(service)
        namespace = await self._namespace(request, service.partition("/")[0])
        if entry is None:
            raise unknown_service(service)
        return Caller(entry, namespace)

    async def all_of(self, request: web.Request) -> list[Caller]:
        """Returns the caller of each model that a request's token may call.

        Raises:
            OpenAiError: the token is not valid, or has no right.
        """
        namespace = await self._namespace(request)
        entries = self._services.models_of(namespace).values()
        return [Caller(entry, namespace_of(entry)) for entry in entries]

    async def _namespace(self, request: web.Request, named: str = "") -> str:
        """Returns the namespace whose services a request may call."""
        token = bearer_token(request.headers)
        if self._reviews is None or not _is_jwt(token):
            raise unauthorized()
        namespace = named or request.headers.get(_PROJECT, "")
        if namespace and not _NAMESPACE.fullmatch(namespace):
            raise invalid_value(_PROJECT, "expected the name of a namespace.")
        review = await self._reviews.get(token, namespace, request.remote or "")
        if not review.user:
            raise unauthorized()
        if not review.may_call:
            raise may_not_call(review.user, review.namespace)
        return review.namespace

    async def _model(self, request: web.Request) -> str:
        if (request.content_length or 0) > self._body_bytes:
            raise body_too_large(self._body_bytes)
        try:
            name = decode(_models, await whole_body(request, self._body_s)).model
        except TimeoutError:
            raise body_too_slow(self._body_s) from None
        except web.HTTPRequestEntityTooLarge:
            raise body_too_large(self._body_bytes) from None
        except msgspec.DecodeError as e:
            raise OpenAiError(
                f"The request's body is not a JSON object with a model: {e}", code="invalid_json"
            ) from None
        if not name:
            raise missing_parameter("model")
        return name

    @contextlib.contextmanager
    def _reading(self, namespace: str) -> Iterator[None]:
        """Counts a body that is read before admission during the block."""
        load = ServiceLoad(
            max_in_flight=BODIES_MAX,
            in_flight=self._bodies,
            places=BODIES_UNSHARED,
            tenants=self._services.tenants,
            on_late=OnLate.SERVE,
        )
        if not admit(load, namespace, _ENDLESS_S).accepted:
            raise too_many_requests("this namespace", BODIES_UNSHARED)
        self._bodies[namespace] += 1
        try:
            yield
        finally:
            self._bodies[namespace] -= 1
            if not self._bodies[namespace]:
                del self._bodies[namespace]


def _is_jwt(token: str) -> bool:
    """Whether a token has the form of Kubernetes' own; no other one is asked about."""
    parts = token.split(".")
    return len(parts) == _JWT_PARTS and all(parts) and token.isascii()
