"""Link certificates of a worker: for the namespaces of its replicas, renewed in time."""

from tests.flowmesh_control.given import link_signer

from flowmesh_control.workers.worker_links import WorkerLinks
from flowmesh_core.protocol.link_certificates import VALID_S, LinkClaims, read_certificate
from flowmesh_core.protocol.messages import PrewarmSpec, RouterAddress, ServingReplica
from flowmesh_core.units import Digest

OPENING = PrewarmSpec(Digest("ab" * 32), "test.echo", 1, 1)
TLS = RouterAddress("tls:routers:8481", group="edge", ca="PEM")
LOCAL = RouterAddress("unix:/run/router")


def replica(service: str) -> ServingReplica:
    return ServingReplica(f"{service}/llm/r1/0", service, "llm", "r1", OPENING)


def test_a_worker_gets_a_certificate_for_the_namespaces_of_its_replicas() -> None:
    links = WorkerLinks(link_signer(), lambda: 100.0, "w", "i1", "thin")
    given = (replica("team-b/one"), replica("team-a/two"), replica("team-a/three"))
    tls, local = links.certified((TLS, LOCAL), given)
    assert local == LOCAL
    claims = read_certificate(tls.certificate).claims
    assert claims == LinkClaims("w", "i1", "thin", "edge", ("team-a", "team-b"), 100.0 + VALID_S)
    assert links.certified((TLS,), ()) == (TLS,), "without replicas it may do nothing"


def test_certificates_are_renewed_at_half_of_their_time() -> None:
    now = [100.0]
    links = WorkerLinks(link_signer(lambda: now[0]), lambda: now[0], "w", "i1", "thin")
    assert links.renewed() is None
    links.certified((TLS,), (replica("team-a/ask"),))
    now[0] += VALID_S / 2 - 1
    assert links.renewed() is None
    now[0] += 1
    renewed = links.renewed()
    assert renewed is not None
    assert read_certificate(renewed[0].certificate).claims.expires_s == now[0] + VALID_S
    assert links.renewed() is None
    now[0] -= 10 * VALID_S  # the clock was set back
    assert links.renewed() is not None
