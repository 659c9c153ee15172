"""The engine ``test.fail``: fails in a chosen way, to test each kind of failure end to end."""

import os
import signal
import time

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engine_api import Progress, Result, Work
from flowmesh_worker.engines.engine_base import EngineBase

_CRASH_CODE = 70
_HANG_S = 3600.0


class AskedToFailError(Exception):
    """Raised for kind ``engine``."""


class Fail(EngineBase):
    """The engine ``test.fail``."""

    capacity = 1

    async def run(self, work: Work, progress: Progress) -> Result:
        """Fails with the given kind and message; never returns."""
        kind, message = str(work.params["kind"]), str(work.params["message"])
        match kind:
            case "crash":
                os._exit(_CRASH_CODE)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(_HANG_S)  # noqa: ASYNC251 - cannot be cancelled, on purpose
            case FailureKind.ENGINE.value:
                raise AskedToFailError(message)
        raise AttemptError(Failure(FailureKind(kind), message))
