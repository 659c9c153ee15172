"""Inputs and outputs, and how they fail."""

from tests.golden.agent.format import Attempt, Scenario, Send, Signature
from tests.golden.agent.written.building import FIRST, scenario, signatures


def scenarios() -> list[Scenario]:
    return [
        scenario(
            "An attempt whose host has exited before its output is stored was preempted",
            Signature("s1", "pair"),
            Attempt("stores", "s1", run_s=1.0, outputs="store", store_s=3.0, keeps_files=True),
            Attempt("crashes", "s1", run_s=2.5, failure="crash"),
            Attempt("full", "s1", outputs="store", store_s=0.5, store_failure="store"),
            FIRST,
            Send(0.1, assign=("stores", "crashes")),
            Send(8.0, assign=("full",)),
            until_s=14.0,
        ),
        scenario(
            "Inputs that cannot be fetched fail their attempt by what is wrong with them",
            Signature("s1", "pair"),
            *(
                Attempt(kind, "s1", fetch_s=0.5 + i / 10, fetch_failure=kind)
                for i, kind in enumerate(("store", "missing-blob", "bad-input"))
            ),
            Attempt("fetched", "s1", fetch_s=1.0),
            FIRST,
            Send(0.1, assign=("store", "missing-blob", "bad-input", "fetched")),
            until_s=6.0,
        ),
        scenario(
            "An attempt without a promised output fails, and its files are released",
            Signature("s1", "plain"),
            Attempt("lacks", "s1", outputs="missing", keeps_files=True),
            Attempt("inline", "s1", keeps_files=True),
            FIRST,
            Send(0.1, assign=("lacks", "inline")),
            until_s=6.0,
        ),
        scenario(
            "An instance whose outputs are being stored is not closed for another",
            *signatures("s1", "s2", memory_mib=600, close_s=0.2),
            Attempt("stores", "s1", outputs="store", store_s=4.0, keeps_files=True),
            Attempt("waits", "s2"),
            Attempt("stores-elsewhere", "s2", outputs="store", store_s=4.0),
            Attempt("goes-on", "s1"),
            FIRST,
            Send(0.1, assign=("stores",)),
            Send(2.5, assign=("waits",)),
            Send(9.0, assign=("stores-elsewhere",)),
            Send(11.0, assign=("goes-on",)),
            until_s=18.0,
        ),
    ]
