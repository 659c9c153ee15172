"""A control plane in a process of its own, so that a test can kill it: ROOT PORT."""

import asyncio
import sys
from pathlib import Path

from tests.flowmesh_control.fabric import control_plane


async def serve(root: Path, port: int) -> None:
    control = control_plane(root)
    await control.start(port=port)
    (root / "url").write_text(control.url)
    await control.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
