"""Measures a revocation: how long it takes with a number of results, on a directory and in S3.

A control plane leads on a store with that many action results, each with a blob of its own, of
which one half is made from a data set directly and the other half from the first; and with a tenth
as many that are not made from it. The goal is 60 s for 10,000 records. Run it with
``make bench-revoke`` or ``python bench/revoke.py [--results N] [--stores directory s3]``.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / f) for f in ("tests/flowmesh_store",)]

import versitygw  # noqa: E402 - found on the path set above

from flowmesh_control.auth.users import StaticUsers  # noqa: E402
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens  # noqa: E402
from flowmesh_control.control_plane import ControlPlane  # noqa: E402
from flowmesh_control.revocation.derivations import Content  # noqa: E402
from flowmesh_control.settings import ControlSettings  # noqa: E402
from flowmesh_core.catalog.plugins import load_catalog  # noqa: E402
from flowmesh_core.errors import FlowMeshError  # noqa: E402
from flowmesh_core.identity import digest_bytes  # noqa: E402
from flowmesh_core.protocol.results import ActionResult, content_artifact  # noqa: E402
from flowmesh_core.sharing.key_ring import KeyRing  # noqa: E402
from flowmesh_core.sharing.seals import Seals  # noqa: E402
from flowmesh_core.spec.secrets import SecretValue  # noqa: E402
from flowmesh_store.action_cache import ActionCache  # noqa: E402
from flowmesh_store.batched_requests import each_of, in_batches  # noqa: E402
from flowmesh_store.sealed_records import SealedRecords  # noqa: E402
from flowmesh_store.store import Store, open_store  # noqa: E402

SCOPE, NAMESPACE = "ns-bench", "bench"
KEYS = KeyRing.of(b"k" * 32)
BLOB_BYTES = 8 << 10
GOAL_S = 60.0


class NoSecrets:
    """A fabric without secrets."""

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """As :meth:`SecretReader.read`."""
        raise FlowMeshError("there are no secrets")


async def fill(store: Store, count: int) -> Content:
    """Publishes results; returns the data set that all but the last tenth are made from."""
    cache = ActionCache(SealedRecords(store.records, Seals(KEYS), refused=lambda _: None))
    blobs = store.view(write=SCOPE, read=(SCOPE,))
    rows = b"the rows that are revoked"
    root = content_artifact("blob", digest_bytes(rows), len(rows))
    await blobs.put(root.blob, rows)

    async def publish(number: int) -> str:
        data = number.to_bytes(8) * (BLOB_BYTES // 8)
        made = content_artifact("blob", digest_bytes(data), len(data))
        await blobs.put(made.blob, data)
        given = root.digest if number < count // 2 else firsts.get(number - count // 2, "")
        result = ActionResult(
            action_id=digest_bytes(b"action %d" % number),
            generation=1,
            engine="test.noop",
            contract=1,
            implementation=1,
            inputs={"rows": given} if given and number < count else {},  # type: ignore[dict-item]
            outputs={"out": made},
            namespace=NAMESPACE,
        )
        await cache.publish(SCOPE, result)
        return made.digest

    firsts: dict[int, str] = {}
    async for number, digest in in_batches(each_of(range(count // 2)), publish):
        firsts[number] = digest
    async for _ in in_batches(each_of(range(count // 2, count + count // 10)), publish):
        pass
    return Content(root.digest, "blob", root.blob, (SCOPE,))


async def measure(url: str, count: int) -> tuple[float, float, dict[str, int]]:
    """Returns the seconds of a dry run and of the revocation, and what was deleted."""
    store = open_store(url)
    control = ControlPlane(
        store,
        replace(ControlSettings(), flush_s=1.0),
        catalog=load_catalog(),
        key_ring=KEYS,
        users=StaticUsers("token"),
        tokens=StaticWorkerTokens({"local": "token"}),
        secrets=NoSecrets(),
    )
    await control.start()
    try:
        content = await fill(store, count)
        began = time.perf_counter()
        await control.services.revocation.preview(content, NAMESPACE)
        previewed = time.perf_counter()
        answer = await control.services.revocation.revoke(content, NAMESPACE)
        ended = time.perf_counter()
    finally:
        await control.stop()
        store.close()
    return previewed - began, ended - previewed, answer.report.deleted


def main() -> int:
    """Measures each store; returns 1 where one takes longer than the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=10_000)
    stores = ["directory", "s3"]
    parser.add_argument("--stores", nargs="+", choices=stores, default=stores)
    options = parser.parse_args()
    worst = 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-revoke-")))
        for name in options.stores:
            url = str(folder / "store")
            if name == "s3":
                program = versitygw.binary()
                if program is None:
                    sys.exit("versitygw is missing: run `make bin/versitygw`, or leave out s3")
                versitygw.set_credentials(os.environ)
                server = stack.enter_context(versitygw.running(program, folder / "s3"))
                url = server.url("bench")
            dry_s, took_s, deleted = asyncio.run(measure(url, options.results))
            worst = max(worst, took_s)
            print(f"{name}: dry run {dry_s:.1f} s, revocation {took_s:.1f} s, {deleted}")
    return 0 if worst <= GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
