"""As tests.flowmesh_control.serve, with batches that need no model: ROOT PORT."""

import asyncio
import sys
from pathlib import Path

from tests.flowmesh_control.fabric import control_plane
from tests.flowmesh_control.openai.conftest import SETTINGS


async def serve(root: Path, port: int) -> None:
    control = control_plane(root, settings=SETTINGS)
    await control.start(port=port)
    await control.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
