"""Attacker: T2, a tenant with a token of the API, who guesses content of another tenant.
Action: uploads it, and compares time and answer with those of an upload that nobody has stored.
Must not happen: the store is asked anything else for it, or the answer differs. (``make
bench-side-channels`` measures the times.)
"""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.attacks.tenants import ATTACKER, NAMESPACES, OWNER, Tenants, tenants
from tests.flowmesh_store import versitygw

from flowmesh_store.store import open_store

LARGE_BYTES = 9 << 20
"""More than an S3 store puts in one request: it asks first whether the scope has the blob."""
Requests = list[tuple[str, ...]]


def rows(seed: int) -> bytes:
    rng = Random(seed)
    return b"\n".join(b'{"n": %d, "t": "%s"}' % (n, rng.randbytes(20).hex().encode())
                      for n in range(8))  # fmt: skip


def tree(seed: int) -> bytes:
    archive, data = io.BytesIO(), Random(seed).randbytes(LARGE_BYTES)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in (("tokenizer.model", data), ("config.json", data[:40])):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


UPLOADS = {"/v1/datasets?name=rows.jsonl&namespace=": rows, "/v1/trees?namespace=": tree}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The access log of an S3 server, which becomes the store of the next control plane."""
    program = versitygw.binary()
    assert program is not None, "run `make bin/versitygw`"
    versitygw.set_credentials(os.environ)
    path = tmp_path / "access.log"
    folder = tmp_path / "s3"
    with versitygw.running(program, folder, "--access-log", str(path)) as server:
        monkeypatch.setattr(
            "tests.flowmesh_control.fabric.open_store", lambda *_, **__: open_store(server.url("x"))
        )
        yield path


def requests_after(log: Path, lines: int) -> Requests:
    """Operation, scope and status of each request for a blob, sorted: some are made at once."""
    fields = [line.split() for line in log.read_text().splitlines()[lines:]]
    return sorted(
        (line[7], line[8].split("/")[2], line[10]) for line in fields if "/cas/" in line[8]
    )


def line_count(log: Path) -> int:
    return len(log.read_text().splitlines())


async def upload(fabric: Tenants, who: str, path: str, data: bytes) -> dict[str, Any]:
    answer = await fabric.ask(
        who, "POST", path + NAMESPACES[who], data=io.BytesIO(data), status=201
    )
    return {k: v for k, v in answer.items() if k not in ("reference", "digest", "size_bytes")}


@pytest.mark.slow
@pytest.mark.parametrize("path", UPLOADS)
async def test_an_upload_asks_the_store_the_same_whether_another_tenant_has_it(
    path: str, tmp_path: Path, log: Path
) -> None:
    made = UPLOADS[path]
    async with tenants(tmp_path) as fabric:
        await upload(fabric, OWNER, path, made(1))
        answers, asked = [], []
        for seed in (1, 2, 1):
            lines = line_count(log)
            answers.append(await upload(fabric, ATTACKER, path, made(seed)))
            asked.append(requests_after(log, lines))
        known, fresh, own = asked
        assert known == fresh != []
        assert {scope for _, scope, _ in known} == {f"ns-{NAMESPACES[ATTACKER]}"}
        assert own != fresh  # the same upload again is seen: the comparison can see
        assert answers[0] == answers[1]
