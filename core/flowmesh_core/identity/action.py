"""The names of work: an action's id, and the signature that a batch must share.

The machine computes an ``action_id`` when a step's inputs are known, looks it up, and publishes
under it. The scheduler groups by ``signature``. Neither depends on users, workers or times.
"""

from collections.abc import Collection, Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.additions import identity_fields, needed_minor, without_additions
from flowmesh_core.identity.coerce import default_of
from flowmesh_core.identity.digest import digest_value
from flowmesh_core.units import Digest

IGNORED = "ignored"
"""Stands for the digest of an input listed in ``ignoredInputs``; it cannot be a digest."""

FIELD_DEFAULTS: Mapping[str, Any] = {
    "dtype": "auto",
    "batchInvariant": True,
    "implementation": "vllm",
    "tensorParallel": 1,
}
"""The identity fields with their defaults."""


def action_id(
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
    inputs: Mapping[str, Digest],
    salt: str = "",
    *,
    ignored_inputs: Collection[str] = (),
) -> Digest:
    """Returns the name of an action: equal names mean equal work.

    Args:
        contract: the engine's contract, of the versions that the run is pinned to.
        params: typed by :func:`effective_params`; missing ones count as their default.
        fields: ``dtype``, ``batchInvariant``, ``implementation``, ``tensorParallel``. Those that
            the contract does not list are left out; missing ones count as their default.
        inputs: the digest on each connected input port (a chunk's row digest for a chunk).
        salt: the cache salt, with the run's uid or step path where ``reuse`` requires it.
        ignored_inputs: ports that enter as a tag in place of their digest.

    Raises:
        IdentityError: a parameter has no canonical form, or an ignored input is not connected.
    """
    named: dict[str, str] = dict(inputs)
    for port in ignored_inputs:
        if port not in named:
            raise IdentityError(
                f"no input {port!r} is connected",
                where="cache.ignoredInputs",
                remedy=f"use one of {', '.join(sorted(named))}" if named else "remove it",
            )
        named[port] = IGNORED
    return digest_value(
        "action",
        [
            contract.name,
            contract.version,
            contract.implementation,
            _complete(contract, params),
            _fields(contract, fields),
            named,
            salt,
        ],
    )


def signature(
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
    components: Mapping[str, Digest],
    resource_class: str,
    mixed: Collection[str] = (),
) -> Digest:
    """Returns the digest of what actions must share to run in one batch.

    Args:
        contract: the engine's contract.
        params: as for :func:`action_id`; only those marked batch-wide enter.
        fields: as for :func:`action_id`.
        components: the digest on each input port; only those of ports that are resident, or
            components and not mixable, enter.
        resource_class: the class of requested resources.
        mixed: the mixable ports that are connected, to whichever artifacts. An engine with adapters
            reserves memory for them and may sum in another order, so its results may differ from
            those of an engine without (ADR 9).

    Raises:
        IdentityError: a parameter has no canonical form.
    """
    complete = _complete(contract, params)
    ports = {name: contract.input_port(name) for name in components}
    loaded = {n: components[n] for n, p in ports.items() if p and p.is_loaded}
    return digest_value(
        "signature",
        [
            contract.name,
            contract.version,
            contract.implementation,
            {n: complete[n] for p in contract.params if p.batch_wide and (n := p.name) in complete},
            _fields(contract, fields),
            loaded,
            resource_class,
            *([sorted(mixed)] if mixed else []),
            *([minor] if (minor := needed_minor(contract, params, fields)) else []),
        ],
    )


def _complete(contract: EngineContract, params: Mapping[str, Any]) -> dict[str, Any]:
    complete = dict(params) if not contract.minor else without_additions(contract, params)
    for p in contract.params:
        if p.name not in complete and not p.added:
            complete[p.name] = default_of(p)
    return complete


def _fields(contract: EngineContract, fields: Mapping[str, Any]) -> dict[str, Any]:
    if contract.added_fields:
        return identity_fields(contract, fields)
    if not contract.identity_fields:
        return {}
    return {f: fields.get(f, FIELD_DEFAULTS.get(f)) for f in contract.identity_fields}
