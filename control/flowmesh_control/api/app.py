"""The web application: the workers' WebSocket, the API and the metrics on one port."""

import time
from typing import TYPE_CHECKING

from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_control.api.audits import AuditHandlers
from flowmesh_control.api.authorization import Authorizer
from flowmesh_control.api.callers import CallerHandlers
from flowmesh_control.api.content_sender import ContentSender
from flowmesh_control.api.data import DataHandlers
from flowmesh_control.api.description import DescriptionHandlers, name_version
from flowmesh_control.api.fabric import FabricHandlers
from flowmesh_control.api.keys import KeyHandlers
from flowmesh_control.api.lineage import LineageHandlers
from flowmesh_control.api.openai import OpenAiHandlers
from flowmesh_control.api.openai_upload import UploadLimits
from flowmesh_control.api.paced_refusals import paced_refusals
from flowmesh_control.api.probes import ProbeHandlers
from flowmesh_control.api.quotas import QuotaHandlers
from flowmesh_control.api.read_only import refusing_writes
from flowmesh_control.api.receipts import AllReceipts
from flowmesh_control.api.request_body import BODY_BYTES_MAX
from flowmesh_control.api.request_log import RequestLogHandlers
from flowmesh_control.api.request_recorder import RequestRecorder
from flowmesh_control.api.responses import errors_as_json
from flowmesh_control.api.revocation import RevocationHandlers
from flowmesh_control.api.runs import RunHandlers
from flowmesh_control.api.services import ServiceHandlers
from flowmesh_control.api.verification import VerificationHandlers
from flowmesh_control.api.withheld import WithheldHandlers
from flowmesh_control.auth.users import NamespaceLabels, Users
from flowmesh_control.openai.quotes import BatchQuotes
from flowmesh_control.queries.partial_outputs import PartialOutputs
from flowmesh_control.services import ControlPlaneServices

if TYPE_CHECKING:
    from aiohttp.typedefs import Middleware


def build_app(
    services: ControlPlaneServices, users: Users, labels: NamespaceLabels
) -> web.Application:
    """Registers every route with its authorization check.

    Four routes need no user's token: ``/worker``, where workers present their own, ``/healthz``,
    ``/openapi.json`` and, with ``metrics_open``, ``/metrics``.
    """
    recorder = RequestRecorder(services.request_log)
    middlewares: list[Middleware] = [
        paced_refusals(time.monotonic),
        recorder.middleware(),
        errors_as_json,
    ]
    if services.refusal is not None:
        middlewares.append(refusing_writes(services.refusal))
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
    app.on_response_prepare.extend((recorder.started, name_version))
    app.router.add_get(operations.CONNECT_WORKER.path, services.gateway.handle)
    probes = ProbeHandlers(
        epoch=services.epoch,
        metrics=services.metrics,
        metrics_open=services.settings.metrics_open,
    )
    app.add_routes((*probes.open_routes(), *DescriptionHandlers().open_routes()))
    sender = ContentSender()
    handlers = (
        _run_handlers(services, labels),
        AllReceipts(services.views, services.deleted, services.service_charges),
        _data_handlers(services, labels, sender),
        _lineage_handlers(services, labels),
        AuditHandlers(auditing=services.auditing, audits=services.audits, views=services.views),
        _fabric_handlers(services),
        WithheldHandlers(services.withholding),
        VerificationHandlers(services.verification),
        _revocation_handlers(services, labels),
        _openai_handlers(services, labels, sender),
        KeyHandlers(services.keys, services.log_reader),
        RequestLogHandlers(services.log_reader),
        QuotaHandlers(
            quotas=services.quotas,
            run_quota=services.run_quota,
            stored=services.stored,
            uploaded=services.uploaded,
            usage=services.usage,
            clock=services.epoch.clock,
        ),
        ServiceHandlers(
            registry=services.registry,
            planner=services.replica_planner,
            tokens=services.service_tokens,
            labels=labels,
            objects=services.settings.objects,
            router_url=services.settings.router_url,
        ),
        CallerHandlers(),
        probes,
    )
    authorizer = Authorizer(users, services.views, services.rates, recorder)
    for handler in handlers:
        for route in handler.routes():
            path = route.pattern or route.operation.path
            app.router.add_route(route.method, path, authorizer.protect(route))
    return app


def _run_handlers(services: ControlPlaneServices, labels: NamespaceLabels) -> RunHandlers:
    return RunHandlers(
        commands=services.commands,
        deletion=services.deletion,
        views=services.views,
        queries=services.queries,
        changes=services.changes,
        admission=services.admission,
        planner=services.planner,
        repinning=services.repinning,
        resumption=services.resumption,
        labels=labels,
        objects=services.settings.objects,
    )


def _data_handlers(
    services: ControlPlaneServices, labels: NamespaceLabels, sender: ContentSender
) -> DataHandlers:
    return DataHandlers(
        runs=services.views,
        partial_outputs=PartialOutputs(services.views, services.store),
        step_outputs=services.step_outputs,
        uploads=services.uploads,
        store=services.store,
        policies=services.policies,
        labels=labels,
        uploaded=services.uploaded,
        sender=sender,
        upload_bytes_max=services.settings.upload_bytes_max,
    )


def _openai_handlers(
    services: ControlPlaneServices, labels: NamespaceLabels, sender: ContentSender
) -> OpenAiHandlers:
    openai = services.openai
    return OpenAiHandlers(
        files=openai.files,
        batches=openai.batches,
        statuses=openai.statuses,
        outputs=openai.outputs,
        quotes=BatchQuotes(openai.batches, services.admission, services.planner),
        uploads=UploadLimits(services.store, services.uploaded),
        sender=sender,
        policies=services.policies,
        labels=labels,
    )


def _lineage_handlers(services: ControlPlaneServices, labels: NamespaceLabels) -> LineageHandlers:
    return LineageHandlers(
        lineage=services.lineage,
        views=services.views,
        uploads=services.uploads,
        store=services.store,
        policies=services.policies,
        catalog=services.catalog,
        labels=labels,
    )


def _revocation_handlers(
    services: ControlPlaneServices, labels: NamespaceLabels
) -> RevocationHandlers:
    return RevocationHandlers(
        revocation=services.revocation,
        uploads=services.uploads,
        views=services.views,
        lineage=services.lineage,
        records=services.store.records,
        policies=services.policies,
        labels=labels,
    )


def _fabric_handlers(services: ControlPlaneServices) -> FabricHandlers:
    return FabricHandlers(
        queries=services.fleet_queries,
        drain=services.gateway,
        policies=services.policies,
        cache=services.cache,
        collection=services.collection,
        objects=services.settings.objects,
    )
