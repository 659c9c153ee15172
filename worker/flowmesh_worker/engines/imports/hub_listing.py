"""What a hub says of a repository at a revision: its commit, its files, its card.

Asked by ``source.resolve``, and by ``dataset.import`` where an address names a commit itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_core.catalog.hub_addresses import HubAddress
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.imports.download import Downloader
from flowmesh_worker.engines.imports.sources import HUB_REMEDIES, hub_headers, hub_revision_url
from flowmesh_worker.secret_values import SecretValues


@dataclass(frozen=True, slots=True)
class HubListing:
    """A repository at a commit.

    Attributes:
        commit: its name.
        sizes: bytes by path of each file; 0 where the hub does not say.
        card: the metadata of its README, as the hub parsed it; None without any.
    """

    commit: str
    sizes: Mapping[str, int]
    card: Any


async def fetch_listing(
    download: Downloader, address: HubAddress, secrets: SecretValues, *, with_sizes: bool = True
) -> HubListing:
    """Asks the hub; without ``with_sizes`` all sizes are 0.

    Raises:
        AttemptError: it refuses, does not answer, or answers with something else.
    """
    url = hub_revision_url(address) + ("?blobs=true" if with_sizes else "")
    answer = await download.fetch(url, sign=hub_headers(secrets), remedies=HUB_REMEDIES)
    try:
        info = json.loads(answer.content)
        commit = str(info["sha"])
        sizes = {str(f["rfilename"]): int(f.get("size") or 0) for f in info.get("siblings") or ()}
        card = info.get("cardData")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise bad_input(f"the hub returned no revision of {address.repository}") from None
    return HubListing(commit, sizes, card)


def part_of(params: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the configuration and the split that a step names; empty where it names none."""
    return str(params.get("config") or ""), str(params.get("split") or "")
