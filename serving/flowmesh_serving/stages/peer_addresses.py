"""Names the hubs of a route to each other, with keys that only they and the router know."""

import functools
import hashlib
import secrets
from collections.abc import Iterable

from flowmesh_core.protocol.serving import PeerAddress
from flowmesh_serving.links.hub_link import HubLink

_PAIRS_MAX = 4096
_KEY_BYTES = 16


class PeerAddresses:
    """The keys of one router; they end with its process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(_KEY_BYTES)
        self._key = functools.lru_cache(_PAIRS_MAX)(self._pair_key)

    def of(self, link: HubLink, links: Iterable[HubLink]) -> dict[str, PeerAddress]:
        """Returns the peers of a hub among those of a route, by worker."""
        if not link.peer:
            return {}
        return {
            other.worker: PeerAddress(other.peer, self._key(*sorted((_name(link), _name(other)))))
            for other in links
            if other is not link and other.peer and _is_port(other) == _is_port(link)
        }

    def _pair_key(self, first: str, second: str) -> str:
        pair = f"{first}\n{second}".encode()
        return hashlib.blake2b(pair, digest_size=_KEY_BYTES, key=self._secret).hexdigest()


def _is_port(link: HubLink) -> bool:
    return link.peer.startswith("tls:")


def _name(link: HubLink) -> str:
    return f"{link.worker}\n{link.incarnation}"
