"""Attacker: T6, a server that is sent a secret and repeats it in another form.

Action: returns it encoded, cut up, reversed or within another text.
Must not happen: anything beyond what docs/security.md documents: such a secret is not recognised,
and only the server that its owner chose can do this; unchanged, it is removed.
"""

import base64
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web
from tests.flowmesh_worker.engines.http.http_server import rows_of, serving

from flowmesh_worker.engines.http.request import HttpRequest

SECRET = "the secret of the author"
DISGUISED = {
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "hex": SECRET.encode().hex(),
    "in a URL": quote(SECRET),
    "reversed": SECRET[::-1],
    "upper case": SECRET.upper(),
    "spaced": " ".join(SECRET),
    "cut in two": f"{SECRET[:9]}|{SECRET[9:]}",
    "without its end": SECRET[:-1],
    "as code points": str([ord(c) for c in SECRET]),
}
SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.mark.parametrize("name", DISGUISED)
async def test_the_documented_residue_is_what_happens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWMESH_HTTP_ALLOW", "127.0.0.1/32")
    text = f"{DISGUISED[name]} and {SECRET}"
    async with serving({"/": lambda _: web.Response(text=text)}) as site:
        [row] = await rows_of(HttpRequest(), "http.request", [{"a": 1}], {"key": SECRET},
                              url=f"{site.url}/", secret="key")  # fmt: skip
    assert row["response"] == f"{DISGUISED[name]} and [secret]"


def test_the_residue_is_documented() -> None:
    assert "(encoded or cut up it would not be recognised)" in SECURITY.read_text()
