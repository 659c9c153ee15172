"""A process of 16 writers that race for one record; test_crash.py starts several.

It says ``ready``, waits for a line on standard input, and then says how many of its writers won.
"""

import asyncio
import os
import sys

from flowmesh_core.errors import ConditionFailedError
from flowmesh_store.store import open_store

WRITERS = 16


async def race(directory: str, key: str, if_match: str | None) -> int:
    records = open_store(directory).records

    async def wins(number: int) -> bool:
        try:
            await records.write(key, f"{os.getpid()}-{number}".encode(), if_match=if_match)
        except ConditionFailedError:
            return False
        return True

    return sum(await asyncio.gather(*map(wins, range(WRITERS))))


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    won = asyncio.run(race(sys.argv[1], sys.argv[2], sys.argv[3] or None))
    sys.stdout.write(f"{won}\n")
