"""The owner of a state folder: decided by locks, not by the content of a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flowmesh_cli.connection.owner import OwnerRecord, claim, current, join, no_other_users
from flowmesh_cli.connection.state_dir import StateDir

HOLD = """
import sys, time
from pathlib import Path
from flowmesh_cli.connection.owner import OwnerRecord, claim
from flowmesh_cli.connection.state_dir import StateDir
import os
own = claim(StateDir(Path(sys.argv[1])))
own.write(OwnerRecord(pid=os.getpid(), url="http://127.0.0.1:1", token="t", worker_token="w"))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path / "state")
    state.prepare()
    return state


def hold(state: StateDir) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def test_only_one_process_owns_a_folder_and_others_can_read_its_record(state: StateDir):
    with hold(state) as child:
        assert claim(state) is None
        owner = current(state)
        assert owner is not None
        assert (owner.pid, owner.url) == (child.pid, "http://127.0.0.1:1")
        child.kill()


def test_a_killed_owner_is_stale_and_its_record_passes_to_the_next_owner(state: StateDir):
    with hold(state) as child:
        child.send_signal(signal.SIGKILL)
    assert current(state) is None
    own = claim(state)
    assert own is not None
    assert own.previous is not None
    assert own.previous.pid == child.pid
    own.release()


def test_an_owner_that_exits_cleanly_leaves_no_record_to_take_over(state: StateDir):
    own = claim(state)
    assert own is not None
    own.write(OwnerRecord(pid=os.getpid(), url="http://127.0.0.1:1"))
    own.release()
    again = claim(state)
    assert again is not None
    assert again.previous is None
    again.release()


def test_the_owner_file_is_closed_to_other_users(state: StateDir):
    own = claim(state)
    assert own is not None
    own.write(OwnerRecord(pid=1, token="secret"))
    assert oct(state.owner.stat().st_mode & 0o777) == "0o600"
    own.release()


def test_the_owner_stays_while_another_process_has_joined(state: StateDir):
    first, second = join(state), join(state)
    assert first is not None
    assert second is not None
    first.release()
    with no_other_users(state) as alone:
        assert not alone
    second.release()
    with no_other_users(state) as alone:
        assert alone
        assert join(state) is None
