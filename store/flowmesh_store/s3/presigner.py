"""Signs URLs of one bucket that others may use without its credentials (presigned URLs).

boto3 takes some 100 µs a URL, since it builds a whole request; the blob service signs up to 256
URLs a request, so it signs them itself, with the signing key of the day. Source: "Authenticating
Requests: Using Query Parameters (AWS Signature Version 4)", Amazon S3 API Reference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

from botocore.credentials import ReadOnlyCredentials

from flowmesh_store.s3.location import S3Location
from flowmesh_store.sigv4 import ALGORITHM, SigningScope, signature, text_prefix, timestamp

URL_VALID_S = 900
"""How long a URL is valid."""
_UNSIGNED = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """Where requests for the objects of a bucket go.

    Attributes:
        origin: scheme, host and port.
        path: what the paths of all objects begin with, without a slash at the end.
        region: of the bucket, for signatures.
    """

    origin: str
    path: str
    region: str

    @property
    def host(self) -> str:
        """The value of the header ``Host``."""
        return self.origin.partition("://")[2]


def bucket_address(location: S3Location, endpoint: str, region: str) -> BucketAddress:
    """Returns the address of a bucket.

    Args:
        location: its name, and whether it has an endpoint of its own.
        endpoint: the server's URL, as boto3 knows it.
        region: the bucket's.
    """
    scheme, _, host = endpoint.rstrip("/").partition("://")
    # A certificate for *.s3.REGION.amazonaws.com does not cover names with dots.
    if location.endpoint or "." in location.bucket:
        return BucketAddress(f"{scheme}://{host}", f"/{quote(location.bucket)}", region)
    return BucketAddress(f"{scheme}://{location.bucket}.{host}", "", region)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What all URLs have in common that are signed in one second with one access key.

    Attributes:
        day: of the signing key.
        key: the signing key.
        text: what is signed, before the digest of the request.
        query: the parameters up to the names of the signed headers.
    """

    second: int
    who: ReadOnlyCredentials
    day: str
    key: bytes
    text: str
    query: str


@dataclass(frozen=True, slots=True)
class Presigner:
    """Signs requests for the objects of a bucket.

    Attributes:
        address: of the bucket.
        credentials: returns the present ones; those of a role change.
        now: the time, in UTC.
        valid_s: how long the URLs are valid.
    """

    address: BucketAddress
    credentials: Callable[[], ReadOnlyCredentials]
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    valid_s: int = URL_VALID_S
    _last: list[_Moment] = field(default_factory=list, init=False, repr=False)

    def url(
        self,
        method: str,
        key: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> str:
        """Returns a URL for one request.

        Args:
            method: of HTTP.
            key: of the object, in the bucket.
            headers: which the request must have with these values; names in lower case.
            query: further parameters, such as ``uploadId``.
        """
        at, moment = self.address, self._moment()
        lines, names = f"host:{at.host}\n", "host"
        if headers:
            signed = sorted({**headers, "host": at.host}.items())
            lines = "".join([f"{name}:{value}\n" for name, value in signed])
            names = ";".join([name for name, _ in signed])
        # In the order of names, as the signature has them; capitals sort first.
        parameters = f"{moment.query}&X-Amz-SignedHeaders={names.replace(';', '%3B')}"
        for name, value in sorted(query.items()) if query else ():
            parameters += f"&{name}={quote(value, safe='')}"
        path = f"{at.path}/{quote(key)}"
        request = f"{method}\n{path}\n{parameters}\n{lines}\n{names}\n{_UNSIGNED}"
        proof = signature(moment.key, moment.text, request)
        return f"{at.origin}{path}?{parameters}&X-Amz-Signature={proof}"

    def _moment(self) -> _Moment:
        now, who = self.now(), self.credentials()
        second, last = int(now.timestamp()), self._last[-1] if self._last else None
        if last is not None and last.second == second and last.who == who:
            return last
        stamp = timestamp(now)
        scope = SigningScope(stamp[:8], self.address.region)
        query = (
            f"X-Amz-Algorithm={ALGORITHM}"
            f"&X-Amz-Credential={quote(f'{who.access_key}/{scope.name}', safe='')}"
            f"&X-Amz-Date={stamp}&X-Amz-Expires={self.valid_s}"
        )
        if who.token:
            query += f"&X-Amz-Security-Token={quote(who.token, safe='')}"
        is_of_day = last is not None and last.day == scope.day and last.who == who
        key = last.key if last is not None and is_of_day else scope.key(who.secret_key or "")
        found = _Moment(second, who, scope.day, key, text_prefix(stamp, scope), query)
        self._last[:] = [found]
        return found
