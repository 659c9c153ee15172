"""What a router's list has of a service: its name, its stages and its limits.

Made by the control plane of a cluster for each release, and by ``fmesh serve`` for its own router.
"""

from flowmesh_core.protocol.router_services import DEFAULT_TIMEOUT_S, ChatFields, ServiceEntry
from flowmesh_core.spec.quantities import byte_count, seconds
from flowmesh_core.spec.service import FlowMeshService, OpenAiSpec
from flowmesh_core.stages.service_graph import ServiceGraph


def router_entry(service: FlowMeshService, graph: ServiceGraph | None) -> ServiceEntry:
    """Returns the entry of a service, without tokens and placement.

    Args:
        service: the checked document.
        graph: its stages, compiled; None for a service of one engine, which has no limits of its
            own: its latency target is measured, and changes nothing about requests; its engine
            keeps those of tokens.
    """
    metadata, spec = service.metadata, service.spec
    name = f"{metadata.namespace}/{metadata.name}"
    model = spec.openai.model if spec.openai is not None else metadata.name
    limits, slo = spec.limits, spec.slo
    slo_s = seconds(slo.latency) if slo.latency else 0.0
    if graph is None:
        return ServiceEntry(
            name,
            model,
            slo_s=slo_s,
            miss_rate=slo.miss_rate,
            ttft_s=seconds(slo.ttft) if slo.ttft else 0.0,
            tpot_s=seconds(slo.tpot) if slo.tpot else 0.0,
            adapters=tuple(name for one in spec.components.values() for name in one.adapters),
        )
    return ServiceEntry(
        name,
        model,
        timeout_s=seconds(limits.timeout) if limits.timeout else DEFAULT_TIMEOUT_S,
        in_flight_max=limits.max_in_flight,
        graph=graph,
        slo_s=slo_s,
        on_late=slo.on_late,
        request_bytes_max=byte_count(limits.max_request_bytes),
        max_in_flight=limits.max_in_flight,
        request_schema=spec.request.schema_,
        miss_rate=slo.miss_rate,
        keys={name: one.key for name, one in spec.components.items() if one.key},
        chat=_chat(spec.openai),
        slo_scale=slo.scale or 0.0,
    )


def _chat(openai: OpenAiSpec | None) -> ChatFields | None:
    if openai is None or not openai.question:
        return None
    question, answer = (text.partition(".")[2].strip() for text in (openai.question, openai.answer))
    return ChatFields(question, answer)
