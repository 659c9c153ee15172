"""The TLS contexts of a hub, which shows its link certificate to each other end."""

import os
import ssl

from flowmesh_worker.ipc.hub_frames import RouterTls


def router_context(tls: RouterTls) -> ssl.SSLContext:
    """Returns the context for connections to routers.

    Raises:
        OSError: the certificates cannot be used.
    """
    context = ssl.create_default_context(cadata=tls.ca)
    _show(context, tls)
    return context


def peer_contexts(tls: RouterTls) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns the contexts of a server for other hubs and of a client of theirs.

    A hub has no name in the cluster's DNS: what its certificate says of its worker is compared.

    Raises:
        OSError: the certificates cannot be used.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=tls.authorities)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cadata=tls.authorities)
    client.check_hostname = False
    for context in (server, client):
        _show(context, tls)
    return server, client


def _show(context: ssl.SSLContext, tls: RouterTls) -> None:
    """Loads the hub's certificate; ``ssl`` reads files only, so it is one in memory."""
    descriptor = os.memfd_create("link-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{tls.certificate}{tls.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
