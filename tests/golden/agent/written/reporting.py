"""What a worker reports, and when, and what it refuses."""

from tests.golden.agent.format import Attempt, Connect, Disconnect, Scenario, Send, Signature
from tests.golden.agent.written.building import FIRST, scenario, signatures


def scenarios() -> list[Scenario]:
    return [
        scenario(
            "Attempts that the control plane does not know after a reconnection are dropped",
            *signatures("s1", "s2", engine="pair"),
            *(Attempt(f"a{i}", "s1", run_s=20.0) for i in (1, 2, 3)),
            Attempt("a4", "s2", fetch_s=20.0),
            Attempt("ended", "s2", run_s=1.0),
            Attempt("new", "s2", run_s=1.0),
            FIRST,
            Send(0.1, assign=("a1", "a2", "a3", "a4", "ended")),
            Disconnect(1.5),
            Connect(4.0),
            Send(4.1, everything=True, keep=("a1", "ended", "unknown"), assign=("a3", "new")),
            until_s=30.0,
        ),
        scenario(
            "Ends are reported again every 30 s and after a reconnection until acknowledged",
            *signatures("s1"),
            Attempt("a1", "s1", run_s=1.0, checkpoints=(0.5,)),
            Attempt("a2", "s1", run_s=1.0),
            FIRST,
            Send(0.1, assign=("a1", "a2")),
            Send(35.0, acknowledged=("a2", "unknown")),
            Send(36.0, assign=("a2", "a1")),
            Disconnect(70.0),
            Connect(75.0),
            Send(75.1, everything=True, acknowledged=("a1",)),
            Send(80.0, assign=("a1",)),
            acknowledge_after_s=None,
            until_s=140.0,
        ),
        scenario(
            "Progress waits a hundredth of a second for other reports",
            *signatures("s1", "s2", engine="pair"),
            Attempt("a1", "s1", run_s=3.0, progress=(0.1, 0.2, 0.201, 0.203, 0.9)),
            Attempt("a2", "s2", run_s=0.005),
            Attempt("a3", "s2", run_s=2.0, progress=(0.5, 0.25), checkpoints=(0.3,)),
            FIRST,
            Send(0.1, assign=("a1", "a2", "a3")),
            until_s=6.0,
        ),
        scenario(
            "An attempt that the worker cannot run is refused",
            Signature("strange", "unknown"),
            Signature("large", "plain", memory_mib=100),
            Attempt("a1", "strange", fetch_s=1.0),
            Attempt("a2", "large", preflight_failure="out-of-memory", fetch_s=3.0),
            FIRST,
            Send(0.1, assign=("a1", "a2")),
            until_s=3.0,
        ),
    ]
