"""A workflow whose run has a damaged record names the record and the remedy."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tests.attacks.by_hand import noop, place
from tests.flowmesh_control.fabric import workflow
from tests.flowmesh_control.test_damaged_records import damage

from flowmesh_control.records.keys import spec_key
from flowmesh_control.runs.admission import Submission
from flowmesh_core.status.conditions import WorkflowReason
from flowmesh_operator.workflows.controller import WorkflowController

if TYPE_CHECKING:
    from flowmesh_operator.kube.client import KubeClient
    from flowmesh_operator.kube.informer_cache import InformerCache
    from flowmesh_operator.workflows.config_maps import ConfigMapInputs
    from flowmesh_operator.workflows.status_writer import StatusWriter


@dataclass
class Mirror:
    """A cache with one object."""

    workflows: dict[str, Any]
    namespaces: dict[str, Any] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Shown:
    """Records what the writer gets."""

    conditions: list[Any] = field(default_factory=list)

    def set_generation(self, uid: str, generation: int, said: Any = None) -> None:
        del uid, generation
        self.conditions += said or []


async def test_a_damaged_record_is_shown_with_its_key_and_remedy() -> None:
    async with place() as there:
        document = workflow("a", noop())
        await there.control.services.admission.submit(Submission(document=document, uid="the-uid"))
        await damage(there.store.records, spec_key("the-uid"))
        await there.lead_anew()
        namespace = document["metadata"].get("namespace", "default")
        meta = {"uid": "the-uid", "name": "a", "namespace": namespace, "generation": 1}
        mirror, shown = Mirror({"the-uid": {**document, "metadata": meta}}), Shown()
        services = there.control.services
        controller = WorkflowController(
            cast("KubeClient", None),
            cast("InformerCache", mirror),
            runs=services.runs,
            commands=services.commands,
            changes=services.changes,
            policies=services.policies,
            quota=services.run_quota,
            epoch=services.epoch,
            writer=cast("StatusWriter", shown),
            config_maps=cast("ConfigMapInputs", None),
        )
        await controller._reconcile("the-uid")
        [accepted, *_] = shown.conditions
        assert accepted.reason == WorkflowReason.UNAVAILABLE
        assert spec_key("the-uid") in accepted.message
        assert "restore the object" in accepted.message
        assert "mistake" not in accepted.message
