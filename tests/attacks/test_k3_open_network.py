"""Attacker: T4, user code that has left its sandbox in a worker's pod; T1 in a pod of its own.
Action: asks a DNS server of its own, the store, the health port, the metadata service, any address.
Must not happen: a byte leaves except to gateway, store and the cluster's DNS, or enters uninvited.
"""

import pytest
from tests.charts.cluster_peers import (
    CODE,
    DNS,
    DNS_POD,
    GATEWAY,
    HEALTH,
    INTERNET,
    METADATA,
    NODE,
    OPERATOR,
    PRIVATE,
    STORE,
    STORE_POD,
    TENANT,
    WORKER,
    policies,
)
from tests.charts.network_evaluator import Peer, allowed
from tests.flowmesh_operator.pool_builder import pool_object

from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import parse_object

pytestmark = pytest.mark.slow
PORTS = (22, 53, 80, 443, 2379, 3128, 6443, 7070, 8080, 8470, 8471, 10250)
TARGETS = (
    Peer("DNS server of the attacker", "203.0.113.9"), INTERNET, PRIVATE, METADATA, NODE,
    Peer("pod of the attacker", "10.244.9.9", "evil", {"k8s-app": "kube-dns"}, {}),
    Peer("Azure's wire server", "168.63.129.16"), Peer("over IPv6", "2606:2800:220:1::1"), WORKER,
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda peer: peer.name)
def test_code_that_left_its_sandbox_reaches_nothing_else(target: Peer) -> None:
    known = policies()
    reached = [
        (port, protocol)
        for port in PORTS
        for protocol in ("TCP", "UDP")
        if allowed(known, CODE, target, port, protocol)
    ]
    assert reached == []
    assert allowed(known, CODE, OPERATOR, GATEWAY)
    assert allowed(known, CODE, STORE_POD, STORE)
    assert allowed(known, CODE, DNS_POD, DNS, "UDP")


@pytest.mark.parametrize("target", [(OPERATOR, HEALTH), (STORE_POD, STORE), (CODE, 80)], ids=str)
def test_a_tenant_s_pod_reaches_no_port_but_the_gateway(target: tuple[Peer, int]) -> None:
    assert not allowed(policies(), TENANT, *target)
    assert allowed(policies(), TENANT, OPERATOR, GATEWAY)


def test_a_pool_with_user_code_cannot_be_opened() -> None:
    spec = {"userCode": True, "egress": [{"cidr": "0.0.0.0/0"}]}
    with pytest.raises(SpecError, match="a pool with userCode has no egress"):
        parse_object(pool_object(spec))
    assert parse_object(pool_object({**spec, "userCode": False}))
