"""AWS Signature Version 4 in headers, for a GET or HEAD without a body.

Users' S3 objects are fetched by the same downloader as any URL, with the credentials of the
attempt, never with the worker's own. Source: "Signature Version 4 signing process", AWS General
Reference.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote, urlsplit

_NOTHING = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


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
    moment = now or datetime.now(UTC)
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
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
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join((_ALGORITHM, stamp, scope, hashed))
    key = f"AWS4{secret_key}".encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    authorization = (
        f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    del headers["host"]
    return {**headers, "Authorization": authorization}
