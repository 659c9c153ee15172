"""A process that writes, deletes and compacts a log until it is killed.

test_record_log.py starts it. A line on standard output tells each operation when it is done.
"""

import random
import sys
from pathlib import Path

from flowmesh_store.filesystem import log as log_module
from flowmesh_store.filesystem.log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot


def write_for_ever(directory: Path, seed: int) -> None:
    log_module.COMPACT_FROM_BYTES = 2000
    log = RecordLog(StoreRoot(directory), "actions")
    chance = random.Random(seed)
    held: list[str] = []
    number = 0
    while True:
        if len(held) > 3 and chance.random() < 0.6:
            done, key = "deleted", held.pop(chance.randrange(len(held)))
            assert log.delete(key, older_than_s=0.0)
        else:
            done, key = "written", f"actions/{seed}/{number}"
            assert log.write(key, key.encode() * 20, if_match=None, durable=False)
            held.append(key)
            number += 1
        sys.stdout.write(f"{done} {key}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    write_for_ever(Path(sys.argv[1]), int(sys.argv[2]))
