"""What defines actions, independent of runs; made by ``action_spec``."""

from typing import Any

import msgspec

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest


class SignatureSpec(msgspec.Struct, frozen=True, gc=False):
    """What the actions of one signature share, and the parameters that a host starts with."""

    info: SignatureInfo
    params: dict[str, Any]


class PredictedDemand(msgspec.Struct, frozen=True, gc=False):
    """What is known of a step's actions before their data exist."""

    signature: Digest
    work: WorkSize


class ActionSpec(msgspec.Struct, frozen=True, gc=False):
    """Everything that defines an action, independent of the runs that subscribe to it.

    Attributes:
        inputs: artifacts by port; ``inline`` has the contents of small blobs among them.
        components: ports whose artifacts the host loads, at its start or with each attempt.
        loaded: those of them that it loads at its start, which are part of the signature.
        once: it calls the outside world in a way that must not be repeated once it has begun.
        model: the base model that its cost is counted under (``base_model``); may be empty.
    """

    contract: EngineContract
    params: dict[str, Any]
    fields: dict[str, Any]
    inputs: dict[str, Artifact]
    inline: dict[Digest, bytes]
    components: tuple[str, ...]
    loaded: tuple[str, ...]
    signature_params: dict[str, Any]
    work: WorkSize
    row_output: str
    secrets: tuple[str, ...]
    once: bool = False
    model: str = ""
