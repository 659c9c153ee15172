"""Attacker: T2, a tenant with a token of the API.

Action: names another tenant's project, and the ids of its files and batches, to OpenAI's API.
Must not happen: anything of them is read, changed, or shown to exist.
"""

import json
from pathlib import Path

from tests.attacks.tenants import ATTACKER, OWNER, Tenants, tenants

LINE = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "of team-a"}],
    },
}
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    + json.dumps(LINE).encode()
    + b"\r\n--x--\r\n"
)
FORM_TYPE = "multipart/form-data; boundary=x"


async def sent(
    fabric: Tenants,
    who: str,
    method: str,
    path: str,
    project: str,
    data: bytes = b"",
    kind: str = "application/json",
) -> tuple[int, bytes]:
    headers = {
        "Authorization": f"Bearer {who}-token",
        "OpenAI-Project": project,
        "Content-Type": kind,
    }
    url = f"{fabric.control.url}/openai/v1/{path}"
    async with fabric.http.request(method, url, headers=headers, data=data) as response:
        return response.status, await response.read()


async def test_files_and_batches_of_another_project_do_not_exist(tmp_path: Path) -> None:
    async with tenants(tmp_path) as fabric:
        status, answer = await sent(fabric, OWNER, "POST", "files", "team-a", FORM, FORM_TYPE)
        assert status == 200, answer
        file = json.loads(answer)["id"]
        body = {"input_file_id": file, "endpoint": LINE["url"], "completion_window": "1h"}
        create = json.dumps(body).encode()
        status, answer = await sent(fabric, OWNER, "POST", "batches", "team-a", create)
        assert status == 200, answer
        batch = json.loads(answer)["id"]
        stem = batch.removeprefix("batch_")
        places = [
            ("GET", f"files/{file}"),
            ("GET", f"files/{file}/content"),
            ("GET", f"files/file-{stem}-output/content"),
            ("GET", f"files/file-{stem}-errors/content"),
            ("DELETE", f"files/{file}"),
            ("GET", f"batches/{batch}"),
            ("POST", f"batches/{batch}/cancel"),
            ("GET", f"batches/..%2Fteam-a%2F{batch}"),
            ("GET", f"files/..%2Fteam-a%2F{file}"),
        ]
        for method, path in places:
            status, answer = await sent(fabric, ATTACKER, method, path, "team-a")
            assert status == 403, (path, answer)
            status, answer = await sent(fabric, ATTACKER, method, path, "team-b")
            assert status == 404, (path, answer)
            missing = path.replace(file, "file-0").replace(batch, "batch_0").replace(stem, "0")
            _, other = await sent(fabric, ATTACKER, method, missing, "team-b")
            assert json.loads(answer)["error"]["code"] == json.loads(other)["error"]["code"]
        assert (await sent(fabric, ATTACKER, "POST", "batches", "team-b", create))[0] == 404
        for path in ("files", "batches"):
            assert (await sent(fabric, ATTACKER, "GET", path, "team-a"))[0] == 403
            found = json.loads((await sent(fabric, ATTACKER, "GET", path, "team-b"))[1])
            assert found["data"] == []
        # The owner reads, and cancels.
        status, answer = await sent(fabric, OWNER, "GET", f"files/{file}/content", "team-a")
        assert (status, json.loads(answer)) == (200, LINE)
        status, answer = await sent(fabric, OWNER, "POST", f"batches/{batch}/cancel", "team-a")
        assert (status, json.loads(answer)["id"]) == (200, batch)
