"""HTTP handlers of the master keys, for administrators; no answer contains a key."""

import msgspec
from aiohttp import web

from flowmesh_api.v1 import operations
from flowmesh_api.v1.keys import RetireBody
from flowmesh_control.api.authorization import AuthorizedRequest, Route, fabric_route
from flowmesh_control.api.request_body import read_body
from flowmesh_control.api.request_recorder import Logging
from flowmesh_control.api.responses import json_response
from flowmesh_control.auth.users import Resource, Verb
from flowmesh_control.records.key_admin import KeyAdmin
from flowmesh_control.request_log.reading import RequestLogReader

_retire_decoder = msgspec.json.Decoder(RetireBody)


class KeyHandlers:
    """Handlers of ``/v1/keys``."""

    def __init__(self, keys: KeyAdmin, log: RequestLogReader) -> None:
        self._keys = keys
        self._log = log

    def routes(self) -> list[Route]:
        """Returns the routes of this class."""
        policies = Resource.POLICIES
        return [
            fabric_route(operations.LIST_KEYS, self.keys, Verb.UPDATE, policies),
            fabric_route(operations.RESEAL_RECORDS, self.reseal, Verb.UPDATE, policies),
            fabric_route(
                operations.RETIRE_KEY,
                self.retire,
                Verb.DELETE,
                policies,
                logging=Logging.BEFORE,
            ),
        ]

    async def keys(self, _: AuthorizedRequest) -> web.Response:
        """``GET /v1/keys`` → :class:`MasterKeys`."""
        found = await self._keys.keys()
        public = await self._log.public_keys()
        return json_response(msgspec.structs.replace(found, public_keys=public))

    async def reseal(self, _: AuthorizedRequest) -> web.Response:
        """``POST /v1/keys/reseal`` → :class:`ResealReport`."""
        return json_response(await self._keys.reseal())

    async def retire(self, call: AuthorizedRequest) -> web.Response:
        """``POST /v1/keys/retire`` :class:`RetireBody` → :class:`RetireReport`."""
        body = await read_body(call.request, _retire_decoder)
        call.note(body.key_id)
        return json_response(await self._keys.retire(body.key_id, lose_results=body.lose_results))
