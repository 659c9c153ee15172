"""Where the attempts of one host write."""

import socket

from flowmesh_worker.host.server import HostServer


def test_a_host_never_gives_two_attempts_the_same_directory() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = HostServer(ours)
        kept = [server.new_directory() for _ in range(2)]
        places = {server.new_directory().path for _ in range(100)}
    assert len(places) == 100
    assert not places & {d.path for d in kept}
