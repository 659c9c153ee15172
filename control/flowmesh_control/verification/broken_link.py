"""The error of a link that does not hold; it ends a verification and becomes its answer."""

from flowmesh_api.v1.verification import BrokenLink
from flowmesh_core.errors import FlowMeshError


class BrokenLinkError(FlowMeshError):
    """A link of the chain from an output's bytes to its origins does not hold."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        """Keeps the link's kind, its name and the reason."""
        super().__init__(reason, where=name)
        self.link = BrokenLink(kind, name, reason)
