"""AWS Signature Version 4: keys and texts, and the headers of a request without a body.

The presigner of the blob service signs URLs with it, with the bucket's account. Workers sign the
requests for users' S3 objects with the credentials of the attempt, never with other ones. It needs
no S3 client. Source: "Signature Version 4 signing process", AWS General Reference.
"""

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
_NOTHING = sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class SigningScope:
    """What a signing key is valid for: a day and a region of S3."""

    day: str
    region: str

    @property
    def name(self) -> str:
        """The scope as credentials and signatures name it."""
        return f"{self.day}/{self.region}/s3/aws4_request"

    def key(self, secret_key: str) -> bytes:
        """Derives the signing key from a secret key."""
        key = f"AWS4{secret_key}".encode()
        for part in (self.day, self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key


def timestamp(moment: datetime) -> str:
    """Returns a moment, in UTC, as requests name it; its first eight characters are the day."""
    return moment.strftime("%Y%m%dT%H%M%SZ")


def text_prefix(stamp: str, scope: SigningScope) -> str:
    """Returns what is signed before the digest of the request."""
    return f"{ALGORITHM}\n{stamp}\n{scope.name}\n"


def signature(key: bytes, prefix: str, request: str) -> str:
    """Returns the signature of a canonical request.

    Args:
        key: of :meth:`SigningScope.key`.
        prefix: of :func:`text_prefix`.
        request: the canonical request.
    """
    text = prefix + sha256(request.encode()).hexdigest()
    return hmac.digest(key, text.encode(), "sha256").hex()


def signed_headers(
    method: str,
    url: str,
    *,
    access_key: str,
    secret_key: str,
    session_token: str = "",
    region: str,
    now: datetime | None = None,
) -> dict[str, str]:
    """Returns the headers that authorise a request to S3.

    Args:
        method: ``GET`` or ``HEAD``.
        url: with its path quoted already.
        access_key: of the user.
        secret_key: of the user.
        session_token: of temporary credentials; empty for permanent keys.
        region: the bucket's.
        now: the time of the request; UTC.
    """
    stamp = timestamp(now or datetime.now(UTC))
    parts, scope = urlsplit(url), SigningScope(stamp[:8], region)
    headers = {"host": parts.netloc, "x-amz-content-sha256": _NOTHING, "x-amz-date": stamp}
    if session_token:
        headers["x-amz-security-token"] = session_token
    names = ";".join(sorted(headers))
    query = "&".join(
        f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}"
        for k, v in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, parts.path or "/", query, lines, names, _NOTHING))
    signed = signature(scope.key(secret_key), text_prefix(stamp, scope), request)
    del headers["host"]
    credential = f"{access_key}/{scope.name}"
    return {
        **headers,
        "Authorization": f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, "
        f"Signature={signed}",
    }
