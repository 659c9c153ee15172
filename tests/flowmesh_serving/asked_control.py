"""A control plane in a process of its own whose routers ask it, and whose hubs use TLS: ROOT PORT.

ROOT has ``hub-ports``, where its routers listen for hubs, and their authority ``ca.crt``.
"""

import asyncio
import sys
from pathlib import Path

from tests.flowmesh_control.fabric import control_plane

from flowmesh_control.settings import ControlSettings


async def serve(root: Path, port: int) -> None:
    """Leads until it is killed."""
    ports = (root / "hub-ports").read_text().split()
    settings = ControlSettings(
        routers=tuple(f"tls:localhost:{hub_port}" for hub_port in ports),
        router_ca=(root / "ca.crt").read_text(),
        router_url="https://localhost/v1",
    )
    control = control_plane(root, settings=settings)
    await control.start(port=port)
    await control.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
