"""Attacker: T1, a tenant who may upload, in a namespace without a quota.
Action: uploads many files at once, each small enough to be decoded in the control plane's threads.
Must not happen: another tenant's upload waits for all of them, or for more than those in progress.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.attacks.one_fabric import fabric_at

from flowmesh_control.importer.decoder import HERE_BYTES_MAX, THREADS

UPLOADS, OTHERS = 16, 3
POOL = 4
"""Threads of the event loop, whatever the machine has."""


def rows(number: int) -> bytes:
    data = b"\n".join(b'{"a":%d,"b":%d}' % (number, n) for n in range(1_500))
    assert len(data) <= HERE_BYTES_MAX
    return data


@pytest.mark.slow
async def test_another_tenant_waits_for_the_uploads_in_progress_at_most(tmp_path: Path) -> None:
    assert THREADS < POOL
    with ThreadPoolExecutor(POOL) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        async with fabric_at(tmp_path) as fabric:
            done: list[str] = []

            async def upload(tenant: str, data: bytes) -> None:
                path = f"/v1/datasets?namespace={tenant}&name=x.jsonl"
                await fabric.call("POST", path, data=data, status=201)
                done.append(tenant)

            flood = [asyncio.create_task(upload("team-a", rows(n))) for n in range(UPLOADS)]
            for number in range(OTHERS):
                await upload("team-b", b'{"a":%d}\n' % number)
            # Each waits for the places that are taken when it comes, and for none that wait then.
            assert done.count("team-a") <= OTHERS * THREADS, done
            await asyncio.gather(*flood)
            assert done.count("team-a") == UPLOADS
