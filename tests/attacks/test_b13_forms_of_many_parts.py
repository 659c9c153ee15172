"""Attacker: T2, a tenant with a token of the API.
Action: uploads a file for OpenAI's batches as a form of very many parts, lines and nested forms.
Must not happen: the control plane reads each of them, and answers nothing else meanwhile.
"""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import StreamReader
from tests.attacks.tenants import ATTACKER, tenants
from tests.attacks.test_61_batches_of_another import FORM, FORM_TYPE

from flowmesh_control.api.openai_upload import LINES_MAX

MANY = 20_000
PART = b'--x\r\nContent-Disposition: form-data; name="n"\r\n\r\n\r\n'
INNER = b"--x\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n"
FORMS = {
    "parts": PART * MANY + FORM,
    "lines before the form": b"\r\n" * MANY + FORM,
    "parts of a part": INNER + PART.replace(b"--x", b"--y") * MANY + b"--y--\r\n" + FORM,
    "headers": FORM.replace(b"\r\n\r\n", b"\r\nA: b" * MANY + b"\r\n\r\n", 1),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_form_of_very_many_lines_is_refused_after_the_first(
    tmp_path: Path, form: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: Counter[str] = Counter()
    readline = StreamReader.readline

    async def counted(self: StreamReader, **limits: Any) -> bytes:
        lines["read"] += 1
        return await readline(self, **limits)

    monkeypatch.setattr(StreamReader, "readline", counted)
    async with tenants(tmp_path) as there:
        headers = {"Authorization": f"Bearer {ATTACKER}-token", "OpenAI-Project": "team-b"}
        headers["Content-Type"] = FORM_TYPE
        url = f"{there.control.url}/openai/v1/files"
        async with there.http.post(url, data=io.BytesIO(form), headers=headers) as answer:
            assert answer.status == 400, await answer.text()
        assert lines["read"] <= LINES_MAX
        async with there.http.post(url, data=io.BytesIO(FORM), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
