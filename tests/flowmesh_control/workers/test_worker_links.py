"""Link certificates of a worker: for the namespaces of its replicas, renewed in time."""

from cryptography import x509
from tests.flowmesh_control.given import link_signer

from flowmesh_control.workers.worker_links import WorkerLinks
from flowmesh_core.protocol.link_certificates import VALID_S, LinkClaims, read_claims
from flowmesh_core.protocol.messages import PrewarmSpec, RouterAddress, ServingReplica
from flowmesh_core.units import Digest

OPENING = PrewarmSpec(Digest("ab" * 32), "test.echo", 1, 1)
TLS = RouterAddress("tls:routers:8481", group="edge", ca="PEM")
LOCAL = RouterAddress("unix:/run/router")


def replica(service: str) -> ServingReplica:
    return ServingReplica(f"{service}/llm/r1/0", service, "llm", "r1", OPENING)


def read(router: RouterAddress) -> tuple[LinkClaims, float]:
    """Returns what the certificate for a router says, and when it ends."""
    found = x509.load_pem_x509_certificate(router.certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    return read_claims(uri), found.not_valid_after_utc.timestamp()


def test_a_worker_gets_a_certificate_for_the_namespaces_of_its_replicas() -> None:
    links = WorkerLinks(link_signer(), lambda: 100.0, "w & 1", "i1", "thin")
    given = (replica("team-b/one"), replica("team-a/two"), replica("team-a/three"))
    tls, local = links.certified((TLS, LOCAL), given)
    assert local == LOCAL
    claims = LinkClaims("w & 1", "i1", "thin", "edge", ("team-a", "team-b"))
    assert read(tls) == (claims, 100.0 + VALID_S)
    assert links.certified((TLS, LOCAL), given[:2]) == (tls, local), "nothing has changed"
    assert links.certified((TLS, LOCAL), given[:1]) != (tls, local)
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
    assert read(renewed[0])[1] == now[0] + VALID_S
    assert links.renewed() is None
    now[0] -= 10 * VALID_S  # the clock was set back
    assert links.renewed() is not None


def test_all_replicas_of_the_control_plane_make_the_same_authority() -> None:
    first, second = link_signer(), link_signer(lambda: 5000.0)
    assert first.authorities == second.authorities
    issued = [each.issue("w", "i1", "thin", "", ["team-a"]) for each in (first, second)]
    (authority,) = first.authorities.values()
    for one in issued:
        x509.load_pem_x509_certificate(one.certificate.encode()).verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority.encode())
        )
    assert issued[0].key != issued[1].key
