"""A client of OpenAI's Batch API, as a program for a pod: prints a JSON line at its end.

It is OpenAI's own client, which the worker image with every engine has. It sends the requests that
stand in its first argument, one a line, waits for the batch, and prints what its files have.
"""

import json
import os
import ssl
import sys
import time
from typing import Any

import httpx
from openai import OpenAI

ENDED = ("completed", "failed", "expired", "cancelled")


def lines_of(client: OpenAI, file: str | None) -> list[dict[str, Any]]:
    """Returns the lines of a file of results; none where there is no file."""
    if file is None:
        return []
    return [json.loads(line) for line in client.files.content(file).text.splitlines()]


def main() -> None:
    """Runs a batch."""
    trust = ssl.create_default_context(cafile="/client/ca.crt")
    url = f"https://flowmesh-gateway.{os.environ['FABRIC']}.svc:8470/openai/v1"
    http = httpx.Client(verify=trust, timeout=60)
    client = OpenAI(base_url=url, api_key=os.environ["TOKEN"], http_client=http)
    file = client.files.create(file=("requests.jsonl", sys.argv[1].encode()), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="1h"
    )
    while batch.status not in ENDED:
        time.sleep(1)
        batch = client.batches.retrieve(batch.id)
    found = {
        "status": batch.status,
        "counts": batch.request_counts.model_dump() if batch.request_counts else {},
        "output": lines_of(client, batch.output_file_id),
        "errors": lines_of(client, batch.error_file_id),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
