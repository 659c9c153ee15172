"""An upload that is refused before it was sent is shown with the reason, however large it is."""

import asyncio
from pathlib import Path

import pytest
from tests.attacks.by_hand import place
from tests.flowmesh_control.fabric import API_TOKEN

from flowmesh_api.v1.quotas import Quota
from flowmesh_api.v1.runs import Uploaded
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

REFUSAL = (
    b'{"error":{"message":"namespace team-b stores 2 TiB, of at most 1 TiB","where":"quota",'
    b'"remedy":"delete runs","problems":[],"code":"quota"}}'
)


def upload(url: str, file: Path) -> None:
    client = ApiClient.at(url, API_TOKEN)
    try:
        with file.open("rb") as body:
            client.ask("POST", "/v1/datasets", Uploaded, query={"namespace": "team-b"}, body=body)
    finally:
        client.close()


def rows(folder: Path) -> Path:
    file = folder / "rows.jsonl"
    with file.open("wb") as writer:
        writer.truncate(64 << 20)
    return file


async def test_the_limit_and_the_remedy_are_shown(tmp_path: Path) -> None:
    async with place() as there:
        quota = Quota(name="q", namespaces=("team-b",), uploaded_bytes_per_day=1 << 10)
        await there.control.services.quotas.replace_all([quota], {"team-b": {}})
        with pytest.raises(CliError, match="namespace team-b has uploaded ") as refused:
            await asyncio.to_thread(upload, there.control.url, rows(tmp_path))
        assert "in 24 hours, of at most 1 KiB" in refused.value.message
        assert refused.value.remedy.startswith("try again at ")
        assert refused.value.code == ExitCode.REFUSED


async def test_also_where_the_server_reads_no_more_and_closes(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(REFUSAL)}\r\n\r\n"
        writer.write(head.encode() + REFUSAL)
        await writer.drain()
        writer.transport.abort()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CliError, match="namespace team-b stores 2 TiB") as refused:
            await asyncio.to_thread(upload, f"http://127.0.0.1:{port}", rows(tmp_path))
        assert refused.value.remedy == "delete runs"
