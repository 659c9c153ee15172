"""A process that counts, writes, deletes and compacts in a log that others use, until it is killed.

test_record_log.py starts several. A line on standard output tells each operation when it is done;
what it reads must not be older than what it has seen.
"""

import random
import sys
from pathlib import Path

from flowmesh_store.filesystem import record_log as log_module
from flowmesh_store.filesystem.record_log import RecordLog
from flowmesh_store.filesystem.root import StoreRoot

SHARED = 6


class Writer:
    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.chance = random.Random(seed)
        self.log = RecordLog(StoreRoot(directory), "actions")
        self.seen: dict[str, int] = {}
        self.held: list[str] = []
        self.number = 0

    def step(self) -> None:
        draw = self.chance.random()
        if draw < 0.01:
            self.log.compact()
        elif draw < 0.02:
            self.log = RecordLog(StoreRoot(self.directory), "actions")
        elif draw < 0.5:
            self.count(f"actions/shared/{self.chance.randrange(SHARED)}")
        elif draw < 0.8 and len(self.held) > 3:
            key = self.held.pop(self.chance.randrange(len(self.held)))
            assert self.log.delete(key, older_than_s=-1.0), f"{key} is lost"
            tell("deleted", key)
        else:
            key = f"actions/{self.seed}/{self.number}"
            self.number += 1
            assert self.log.write(key, key.encode() * 9, if_match=None, durable=False)
            self.held.append(key)
            tell("written", key)

    def count(self, key: str) -> None:
        """One more than what is there, unless another was first."""
        record = self.log.read(key)
        found = 0 if record is None else int(record.data)
        assert found >= self.seen.get(key, 0), f"{key}: {found} after {self.seen[key]}"
        if_match = None if record is None else record.etag
        if self.log.write(key, b"%d" % (found + 1), if_match=if_match, durable=False):
            found += 1
            tell("counted", f"{key}={found}")
        self.seen[key] = found


def tell(done: str, what: str) -> None:
    sys.stdout.write(f"{done} {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    log_module.COMPACT_FROM_BYTES = 2000
    writer = Writer(Path(sys.argv[1]), int(sys.argv[2]))
    while True:
        writer.step()
