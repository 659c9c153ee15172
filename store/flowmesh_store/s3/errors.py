"""Translates errors of S3 servers and of both clients into errors of the store."""

import re

from botocore.exceptions import BotoCoreError, ClientError
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from flowmesh_core.errors import StoreError, StoreFullError, StoreUnavailableError

_HTTP_SERVER_ERROR = 500
_REQUEST_REFUSED = re.compile(r"status code: 4(?!0[489]|12|29)\d\d")
"""Client errors in obstore's messages, except 404, 408, 409, 412 and 429."""
_FULL = frozenset({"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"})
_REFUSED = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "Forbidden"}
)


def code_of(error: ClientError) -> str:
    """Returns the server's code, such as ``PreconditionFailed``."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """Returns the HTTP status; 0 where there is none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def records_error(error: BotoCoreError | ClientError, where: str) -> StoreError:
    """Returns the store's error for one of boto3's."""
    if not isinstance(error, ClientError):
        return _unavailable(str(error), where)
    code = code_of(error)
    if code in _FULL:
        return _full(code, where)
    if code in _REFUSED:
        return _refused(code, where)
    if code == "NoSuchBucket":
        return StoreError("there is no such bucket", where=where, remedy="create it first")
    if status_of(error) >= _HTTP_SERVER_ERROR or code in ("SlowDown", "RequestTimeout"):
        return _unavailable(str(error), where)
    return StoreError(str(error), where=where, remedy="see what the S3 server says of this code")


def blobs_error(error: BaseError | FileNotFoundError, where: str) -> StoreError:
    """Returns the store's error for one of obstore's; the caller handles a missing blob."""
    text = str(error)
    reason = text.split("\n", 1)[0]
    if any(code in text for code in _FULL):
        return _full(reason, where)
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or any(
        f"<Code>{code}</Code>" in text for code in _REFUSED
    ):
        return _refused(reason, where)
    if is_missing_bucket(error):
        return StoreError("there is no such bucket", where=where, remedy="create it first")
    if _REQUEST_REFUSED.search(reason) and "RequestTimeout" not in text:
        return StoreError(reason, where=where, remedy="see what the S3 server says of this code")
    return _unavailable(reason, where)


def is_missing_bucket(error: Exception) -> bool:
    """Whether an obstore error "not found" is about the bucket and not about a key."""
    return "NoSuchBucket" in str(error)


def _full(reason: str, where: str) -> StoreError:
    return StoreFullError(
        f"the bucket is full ({reason})",
        where=where,
        remedy="raise the quota; `fmesh cache gc` removes what nobody needs",
    )


def _refused(reason: str, where: str) -> StoreError:
    return StoreError(
        f"access was refused ({reason})",
        where=where,
        remedy="check the credentials and the bucket's policy; workers need get and put on cas/",
    )


def _unavailable(reason: str, where: str) -> StoreError:
    return StoreUnavailableError(
        reason, where=where, remedy="check the endpoint and the network, then try again"
    )
