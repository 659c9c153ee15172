"""``fmesh plan FILE.jsonl``: what a file of OpenAI's requests would cost and take."""

import io
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

import orjson

from flowmesh_api.openai.batches import BatchPlan, PlanBatchBody
from flowmesh_api.openai.files import FileDeleted, FileObject
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.input_file import require_file
from flowmesh_cli.views import formatting


def plan_batch(http: ApiClient, file: Path) -> BatchPlan:
    """Uploads a file, plans it as a batch, and deletes it again.

    Raises:
        CliError: it cannot be read, or be a batch.
    """
    require_file(file)
    endpoint = _endpoint(file)
    boundary = secrets.token_hex(16)
    with _form(file, boundary) as form:
        uploaded = http.ask(
            "POST",
            "/openai/v1/files",
            FileObject,
            body=form,
            content_type=f"multipart/form-data; boundary={boundary}",
        )
    try:
        body = PlanBatchBody(uploaded.id, endpoint)
        return http.ask("POST", "/openai/v1/batches/plan", BatchPlan, document=body)
    finally:
        http.ask("DELETE", f"/openai/v1/files/{uploaded.id}", FileDeleted)


def show_quotes(terminal: Terminal, plan: BatchPlan) -> None:
    """Writes the quotes of a batch, and how many lines it has."""
    terminal.table(
        ["completion window", "cost", "time", ""],
        [
            [
                quote.completion_window,
                formatting.usd(quote.nanousd, estimated=True),
                f"~{formatting.seconds(quote.seconds)}",
                "met" if quote.is_met else "too short",
            ]
            for quote in plan.quotes
        ],
        right="cost time",
    )
    wrong = f", {formatting.count(plan.wrong, 'wrong line')}" if plan.wrong else ""
    terminal.text(f"  {formatting.count(plan.requests, 'request')}{wrong}")


def _endpoint(file: Path) -> str:
    """Returns the endpoint that the first line of a file names."""
    with file.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    try:
        given: Any = orjson.loads(first)
        return str(given["url"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise CliError(
            "its first line is not a request of OpenAI's Batch API",
            ExitCode.USAGE,
            where=str(file),
            remedy="write {custom_id, method, url, body} in each line: docs/openai-batch.md",
        ) from None


def _form(file: Path, boundary: str) -> io.BufferedRandom:
    """Returns the form of an upload, in a temporary file so that its size is known."""
    form = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    part = f"--{boundary}\r\nContent-Disposition: form-data; name="
    form.write(f'{part}"purpose"\r\n\r\nbatch\r\n'.encode())
    form.write(f'{part}"file"; filename="requests.jsonl"\r\n\r\n'.encode())
    with file.open("rb") as source:
        shutil.copyfileobj(source, form)
    form.write(f"\r\n--{boundary}--\r\n".encode())
    form.seek(0, os.SEEK_SET)
    return form
