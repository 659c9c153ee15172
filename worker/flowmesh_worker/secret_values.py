"""The secrets of one attempt, and the hosts to which an engine may send each.

The owner of a secret names the hosts (on a cluster with the annotation ``flowmesh.dev/hosts``); the
control plane sends them with the value. Engines call :meth:`SecretValues.require` before each
request that carries a secret, also after a redirect.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from yarl import URL

from flowmesh_core.errors import AttemptError, Failure, FailureKind

ANY_HOST = "*"
_SUFFIX = "*."


class SecretValues(Mapping[str, str]):
    """Values by name; a name without hosts may be sent nowhere. Values are never printed."""

    __slots__ = ("_hosts", "_values")

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        hosts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Keeps values and hosts.

        Args:
            values: by name.
            hosts: by name: hosts, ``*.suffix`` for the hosts below a domain, or ``*`` for any.
        """
        self._values = dict(values or {})
        self._hosts = {name: tuple(given) for name, given in (hosts or {}).items()}

    @classmethod
    def for_any_host(cls, values: Mapping[str, str]) -> Self:
        """Returns values that may be sent to every host."""
        return cls(values, dict.fromkeys(values, (ANY_HOST,)))

    def __getitem__(self, name: str) -> str:
        """Returns a value."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Returns the number of secrets."""
        return len(self._values)

    def __repr__(self) -> str:
        """Returns the names and hosts."""
        return f"SecretValues(hosts={self._hosts})"

    def require(self, names: Iterable[str], url: str) -> None:
        """Refuses a request whose host may not get one of the secrets.

        Args:
            names: the secrets that the request carries; those that the attempt lacks are ignored.
            url: the request's.

        Raises:
            AttemptError: kind ``bad-input``; names the secret, the host and its allowed hosts.
        """
        host = _host(url)
        for name in names:
            hosts = self._hosts.get(name, ())
            if name in self._values and not any(_allows(allowed, host) for allowed in hosts):
                raise AttemptError(
                    Failure(
                        FailureKind.BAD_INPUT,
                        f"the secret {name!r} may not be sent to {host or 'this address'}",
                        f"its hosts are {', '.join(hosts) or 'none'}; its owner names them in the"
                        " annotation flowmesh.dev/hosts of the Secret",
                    )
                )


def _host(url: str) -> str:
    """Returns a URL's host as the client resolves it; empty without one."""
    try:
        return (URL(url).raw_host or "").lower()
    except ValueError:
        return ""


def _allows(allowed: str, host: str) -> bool:
    if allowed == ANY_HOST:
        return True
    if allowed.startswith(_SUFFIX):
        below = host.endswith(allowed[1:]) and len(host) > len(allowed) - 1
        return below and not host.rpartition(".")[2].isdigit()  # a name, and no address
    return bool(host) and host == allowed
