"""The ranges that a network policy excludes from a wide range of addresses: those not public.

The same as workers refuse by themselves (``flowmesh_worker.engines.egress``), which a test checks.
"""

import ipaddress

_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
            "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
            "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
            # All of IPv6 but 2000::/3, then what is special in it.
            "::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
        ),
    )
)  # fmt: skip


def not_public_within(cidr: str) -> list[str]:
    """Returns the ranges that are not public within a larger one; none where it is such itself."""
    given = ipaddress.ip_network(cidr)
    same = [n for n in _NOT_PUBLIC if n.version == given.version]
    if any(given.subnet_of(n) for n in same):  # type: ignore[arg-type]
        return []
    return [str(n) for n in same if n.subnet_of(given)]  # type: ignore[arg-type]
