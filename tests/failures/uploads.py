"""Uploads models and rows to a fabric, as a tenant does."""

import io
import tarfile
from pathlib import Path
from typing import Any

import orjson
from tests.flowmesh_control.fabric import Fabric


async def upload_model(fabric: Fabric, namespace: str, folder: Path) -> str:
    """Uploads a model; returns the namespace's reference to it."""
    return await _upload(fabric, f"trees?namespace={namespace}&kind=model", _packed(folder))


async def upload_rows(fabric: Fabric, namespace: str, rows: list[dict[str, Any]]) -> str:
    """Uploads rows; returns the namespace's reference to them."""
    lines = b"\n".join(orjson.dumps(row) for row in rows)
    return await _upload(fabric, f"datasets?namespace={namespace}&name=rows.jsonl", lines)


async def _upload(fabric: Fabric, path: str, data: bytes) -> str:
    answer = await fabric.call("POST", f"/v1/{path}", data=data, status=201)
    return str(answer["reference"])


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(p for p in folder.iterdir() if p.is_file()):
            tar.add(path, arcname=path.name)
    return packed.getvalue()
