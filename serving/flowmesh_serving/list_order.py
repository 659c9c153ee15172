"""Refuses lists of services that are older than one that the router has.

A leader that another one has deposed may answer until it notices, and a proxy may send an older
answer. Workers refuse an outdated leader in the same way, by its epoch.
"""

import logging

from flowmesh_core.protocol.router_services import RouterServices

_log = logging.getLogger(__name__)


class ListOrder:
    """The newest list that a router has had, by its leader's epoch and its version there."""

    def __init__(self) -> None:
        self._newest = (0, 0)
        self._refused_epoch = 0

    def accepts(self, listed: RouterServices) -> bool:
        """Returns whether a list may replace the one that the router has.

        One without an epoch may: it is a file, or of a leader of an older release, which an
        installation may be taken back to.
        """
        shown = (listed.epoch, listed.version)
        if listed.epoch and shown < self._newest:
            self._log_once(listed.epoch)
            return False
        self._newest = max(self._newest, shown)
        return True

    def _log_once(self, epoch: int) -> None:
        if epoch != self._refused_epoch:
            self._refused_epoch = epoch
            _log.warning(
                "refused an outdated list of services, of epoch %d: the newest is of epoch %d; "
                "where the store was replaced, restart the router",
                epoch,
                self._newest[0],
            )
