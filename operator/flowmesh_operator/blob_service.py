"""``python -m flowmesh_operator.blob_service``: runs a replica of the blob service.

It reads the same environment variables as the operator, of which it needs store, master keys,
certificate and port. It does not use the API server.
"""

import asyncio
import logging
import os
import socket
import sys
from dataclasses import replace

from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_control.blob_service.service import BlobServiceSettings, running_blob_service
from flowmesh_control.observability.log_format import LogFormatError, formatter
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.store_account import account_changed
from flowmesh_operator.exit_codes import OperatorExitCode
from flowmesh_operator.settings import OperatorSettings, SettingsError, read_settings
from flowmesh_operator.tasks import first, stop_event

log = logging.getLogger("flowmesh.operator.blobs")


def main() -> int:
    """Serves until a signal or an error; returns the exit code."""
    lines = logging.StreamHandler()
    logging.basicConfig(handlers=[lines], level=logging.INFO)
    try:
        lines.setFormatter(formatter(os.environ))
        settings = read_settings(os.environ, host=socket.gethostname())
        asyncio.run(serve(settings))
    except (SettingsError, LogFormatError) as e:
        sys.stderr.write(f"error: {e}\n")
        return OperatorExitCode.SETTINGS
    except (FlowMeshError, OSError) as e:
        log.critical("%s", e)
        return OperatorExitCode.FAILED
    return OperatorExitCode.STOPPED


async def serve(settings: OperatorSettings) -> None:
    """Serves until SIGTERM or SIGINT, or until the bucket's account has changed.

    Raises:
        FlowMeshError: the store cannot be used, or the certificate.
        OSError: the port is taken.
    """
    stop = stop_event()
    service = BlobServiceSettings(
        settings.store, settings.key_ring, settings.gateway_host, settings.blob_service_port
    )
    service = replace(service, grace_s=settings.collect_grace_s)
    certificate = TlsCertificate.of(settings.tls_cert, settings.tls_key)
    async with running_blob_service(replace(service, certificate=certificate)):
        waits = [stop.wait(), account_changed(settings.store_account_dir, os.environ)]
        await first(*waits, *([] if certificate is None else [certificate.follow()]))


if __name__ == "__main__":
    sys.exit(main())
