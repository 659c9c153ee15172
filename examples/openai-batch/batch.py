"""Runs requests.jsonl with OpenAI's own client: OPENAI_BASE_URL and OPENAI_API_KEY say where."""

import sys
import time
from pathlib import Path

from openai import OpenAI

ENDED = ("completed", "failed", "expired", "cancelled")
client = OpenAI()
source = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).with_name("requests.jsonl"))
file = client.files.create(file=source.open("rb"), purpose="batch")
batch = client.batches.create(
    input_file_id=file.id,
    endpoint="/v1/chat/completions",
    completion_window="24h",
    metadata={"budget_usd": "0.50"},
)
shown = ""
while batch.status not in ENDED:
    if batch.status != shown:
        print(shown := batch.status, file=sys.stderr)
    time.sleep(1)
    batch = client.batches.retrieve(batch.id)
print(batch.status, batch.request_counts, file=sys.stderr)
for name in (batch.output_file_id, batch.error_file_id):
    if name is not None:
        print(client.files.content(name).text, end="")
