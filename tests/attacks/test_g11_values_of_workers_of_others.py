"""Attacker: W, a worker with a valid certificate, but of other namespaces, routers or another name.
Action: connects to the port of a hub, also in the name of another worker, and sends it values.
Must not happen: the hub reads one; that of a worker of its own namespace is read.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.test_g10_connections_to_the_port_for_values import answer
from tests.flowmesh_serving.machines import hub_with_port, tls_of
from tests.flowmesh_serving.stack import until
from tests.flowmesh_serving.tls_stack import certificate, signer

from flowmesh_core.protocol.link_certificates import LinkCertificate
from flowmesh_worker.serving.link_tls import peer_contexts

OF_OTHERS: dict[str, Callable[[], LinkCertificate]] = {
    "has no namespace of this one": lambda: certificate(["team-b"], "w-2"),
    "is for the routers 'edge'": lambda: signer().issue("w-2", "i1", "thin", "edge", ["team-a"]),
    "its certificate does not": lambda: certificate(worker="w-3"),
}


@pytest.mark.parametrize("reason", OF_OTHERS)
async def test_a_hub_reads_values_of_workers_of_its_own_namespaces_alone(
    tmp_path: Path, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub_with_port(tmp_path, "w-1") as (hub, port):
        others = peer_contexts(tls_of(OF_OTHERS[reason]()))[1]
        assert await answer(port, others) == b""
        assert reason in caplog.text
        assert hub._stages._early.size == 0
        rightful = peer_contexts(tls_of(certificate(["team-a", "team-b"], "w-2")))[1]
        assert await answer(port, rightful) != b""
        await until(lambda: hub._stages._early.size > 0)
