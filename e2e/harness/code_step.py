"""Workflows of one step of ``code.python``, and the rows that it returned."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from e2e.harness.user import User


def code_workflow(
    code: str, args: Mapping[str, Any] | None = None, memory_mib: int = 128
) -> dict[str, Any]:
    """Returns a workflow whose output ``found`` has the rows that the code returns."""
    params = {"code": textwrap.dedent(code), "args": dict(args or {}), "memoryMib": memory_mib}
    step = {"name": "found", "uses": "code.python", "with": params}
    return {"steps": [step], "outputs": {"found": "found.rows"}}


def rows_of(user: User, run: str) -> list[dict[str, Any]]:
    """Downloads the output of a run of :func:`code_workflow`; returns its rows."""
    folder = user.folder / f"out-{run}"
    user.answer("outputs", run, "--download", folder.name)
    return [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
