"""Attacker: T5, T6, content that names an address, or a name server that answers with one.

Action: names addresses of every special registry, of clouds' metadata, and IPv4 inside IPv6.
Must not happen: an address that is not of the public internet may be reached.
"""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_worker.engines.egress.addresses import AddressPolicy

SPECIAL = (
    # IANA IPv4 special-purpose address registry, multicast and reserved
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32",
    "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "233.252.0.0/24", "239.0.0.0/8", "240.0.0.0/4", "255.255.255.255/32",
    # metadata and platform services of clouds
    "169.254.169.254/32", "169.254.170.2/32", "168.63.129.16/32", "100.100.100.200/32",
    "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128",
    # IANA IPv6 special-purpose address registry, and what was never given out
    "::1/128", "::/128", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64",
    "2001::/23", "2001::/32", "2001:1::1/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48",
    "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "8000::/2",
)  # fmt: skip
PRIVATE_V4 = ("10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.1.1", "168.63.129.16")
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "128.0.0.0", "168.63.129.15", "168.63.129.17", "172.15.255.255", "172.32.0.0",
    "192.0.1.0", "192.88.98.1", "198.20.0.0", "223.255.255.255", "2001:200::1", "2001:4860::8888",
    "2400::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
)  # fmt: skip


@pytest.mark.parametrize("network", SPECIAL)
def test_the_edges_and_samples_of_a_special_range_are_refused(network: str) -> None:
    found = ipaddress.ip_network(network)
    last = found.num_addresses - 1
    for offset in {0, min(1, last), last // 3, last // 2, max(last - 1, 0), last}:
        assert not AddressPolicy().permits(str(found[offset])), found[offset]


@given(st.sampled_from(SPECIAL), st.integers(0, 2**128))
def test_any_other_address_of_a_special_range_is_refused(network: str, number: int) -> None:
    found = ipaddress.ip_network(network)
    assert not AddressPolicy().permits(str(found[number % found.num_addresses]))


@pytest.mark.parametrize("inner", PRIVATE_V4)
@pytest.mark.parametrize(
    "form",
    [
        "::ffff:{}", "::ffff:0:{}", "::{}", "64:ff9b::{}", "64:ff9b:1::{}", "64:ff9b:1:fffe::{}",
        "2606:4700::5efe:{}", "2606:4700::200:5efe:{}", "fe80::5efe:{}",
    ],
)  # fmt: skip
def test_an_embedded_ipv4_address_is_the_one_that_is_checked(form: str, inner: str) -> None:
    assert not AddressPolicy().permits(form.format(inner))


@pytest.mark.parametrize("inner", PRIVATE_V4)
def test_an_address_of_a_special_range_is_refused_through_6to4(inner: str) -> None:
    packed = ipaddress.IPv4Address(inner).packed.hex()
    assert not AddressPolicy().permits(f"2002:{packed[:4]}:{packed[4:]}::1")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_permitted_unless_an_administrator_refuses_them(address: str) -> None:
    assert AddressPolicy().permits(address)
    meant = ipaddress.ip_address(address)
    if isinstance(meant, ipaddress.IPv6Address) and "." in address:
        meant = ipaddress.IPv4Address(int(meant) & 0xFFFFFFFF)
    assert not AddressPolicy(refused=[ipaddress.ip_network(meant)]).permits(address)


@pytest.mark.parametrize("address", ["10.1.2.3", "fec0::1", "::ffff:10.1.2.3"])
def test_a_network_that_an_administrator_opens_is_permitted(address: str) -> None:
    networks = [ipaddress.ip_network(n) for n in ("10.1.0.0/16", "fec0::/10")]
    assert AddressPolicy(networks).permits(address)
