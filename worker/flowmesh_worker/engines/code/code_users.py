"""The users of tenants' code: a uid for each tenant, where the container may switch uids.

Kept by the container of users' code for its life. Where it may not switch, all code runs as its
own user, and it serves the tenant of its first call alone: a process that a call left behind could
signal the next call's, and read its files.
"""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from flowmesh_core.errors import FlowMeshError

FIRST_UID = 10_100
"""Above the users of the pods' own containers."""
_LAST_UID = 60_000
_FIRST_RESIDENT, _LAST_RESIDENT = 60_001, 65_000
CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SYS_PTRACE": 19,
}
"""To switch users, measure and kill their processes, and remove their files."""
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")


class OtherTenantError(FlowMeshError):
    """The container serves another tenant and cannot switch users."""

    def __init__(self) -> None:
        super().__init__(
            "this container runs the code of another namespace and cannot switch uids",
            remedy="set spec.sandbox.hostUsers of the pool to false, or raise its maxReplicas",
        )


class CodeUsers:
    """Decides as which user a tenant's code runs."""

    def __init__(self, *, switches: bool) -> None:
        """Starts without tenants; ``switches`` as :func:`can_switch` returns it."""
        self.switches = switches
        self._uids: dict[str, int] = {}
        self._residents: set[int] = set()

    @property
    def used(self) -> bool:
        """Whether it has served a tenant."""
        return bool(self._uids)

    def uid_of(self, tenant: str) -> int:
        """Returns a tenant's uid, always the same; 0 where the container's own user is meant.

        Raises:
            OtherTenantError: the container cannot serve this tenant.
        """
        if tenant not in self._uids:
            uid = FIRST_UID + len(self._uids) if self.switches else 0
            if uid > _LAST_UID or (self._uids and not self.switches):
                raise OtherTenantError
            self._uids[tenant] = uid
        return self._uids[tenant]

    def take_resident(self, tenant: str) -> int:
        """Returns a uid of a tenant's resident sandbox alone; 0 as for :meth:`uid_of`.

        Raises:
            OtherTenantError: the container cannot serve this tenant.
        """
        if not self.uid_of(tenant):
            return 0
        free = (uid for uid in range(_FIRST_RESIDENT, _LAST_RESIDENT) if uid not in self._residents)
        uid = next(free, 0)
        if not uid:
            raise OtherTenantError
        self._residents.add(uid)
        return uid

    def give_back(self, uid: int) -> None:
        """Frees the uid of a resident sandbox of which nothing is left."""
        self._residents.discard(uid)


def can_switch() -> bool:
    """Whether this process may run others as the users of the table, and end and clean up after."""
    if os.geteuid() != 0 or not _has_capabilities():
        return False
    with suppress(OSError, subprocess.SubprocessError):
        return _as_user(FIRST_UID, ":") == 0
    return False


def end_user(uid: int) -> None:
    """Kills all processes of a user at once, and removes what it left in shared directories."""
    _as_user(uid, "kill -KILL -1")
    for folder in _SHARED:
        with suppress(OSError):
            for path in list(Path(folder).iterdir()):
                _remove_of(path, uid)


def _as_user(uid: int, command: str) -> int:
    """Runs a shell command as a user; signal -1 reaches all processes of that user but its own."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        user=uid,
        group=uid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        cwd="/",
        check=False,
    )
    return done.returncode


def _remove_of(path: Path, uid: int) -> None:
    with suppress(OSError):
        if path.lstat().st_uid != uid:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _has_capabilities() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff")), "0")
    bits = int(effective, 16)
    return all(bits >> number & 1 for number in CAPABILITIES.values())
