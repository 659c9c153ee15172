"""Turns a user's secret into a header that is sent only to the origin in the workflow."""

import re
from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engines.egress.urls import origin
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.http.call import Credential
from flowmesh_worker.secret_values import SecretValues

KEY_HEADER = "Idempotency-Key"
_WRITTEN_OUT = re.compile(r"https?://[^\s/?#{}\\@]+(?=[/?#]|$)")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.6.2
_OURS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"),
        *("expect", "keep-alive", "proxy-authorization", KEY_HEADER.lower()),
    }
)


def find_credential(params: Mapping[str, Any], secrets: SecretValues) -> Credential | None:
    """Returns the header that ``secret`` and ``secretHeader`` describe; None without a secret.

    Raises:
        AttemptError: kind ``bad-input``; the secret is missing, or is not valid in a header.
    """
    name = params.get("secret")
    if name is None:
        return None
    secret = secrets.get(str(name), "").strip()
    if not secret:
        raise bad_input(
            f"the secret {name!r} was not sent with this attempt, or is empty",
            "create it; on a laptop it is an environment variable FMESH_SECRET_...",
        )
    if not secret.isprintable():
        raise bad_input(
            f"the secret {name!r} has line breaks or control characters",
            "use one line of text",
        )
    header, _, scheme = (part.strip() for part in str(params["secretHeader"]).partition(":"))
    require_settable(header, "secretHeader")
    value = f"{scheme} {secret}".strip()
    return Credential(header, value, secret, lambda url: secrets.require([str(name)], url))


def written_origin(url: str) -> str:
    """Returns the origin that a URL's template has in every row.

    Raises:
        AttemptError: kind ``bad-input``; rows could send the secret elsewhere.
    """
    found = _WRITTEN_OUT.match(url)
    at = origin(found[0]) if found else ""
    if not at:
        raise bad_input(
            "with.secret needs a URL whose host is written out, or a row could send the secret"
            " elsewhere",
            "write https://HOST/... and use templates only after the host",
        )
    return at


def require_settable(header: str, where: str) -> None:
    """Refuses a header name that is not valid, or that the client sets itself.

    Raises:
        AttemptError: kind ``bad-input``.
    """
    if not _TOKEN.fullmatch(header) or header.lower() in _OURS:
        raise bad_input(f"with.{where} may not set {header!r}", "name another header")
