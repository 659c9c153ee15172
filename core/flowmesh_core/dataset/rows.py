"""The digests of rows: named, type-tagged values, independent of their file and its schema.

A row is hashed as a header (the columns' names in order, with the type of each value or ``null``)
and its values in that order in canonical form. A null has no type, so only values determine a
column's type, and the digest does not change where a larger data set knows more of a column.

Work is done by column, since a data set of 100,000 rows is hashed before anything can be reused.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, cast

import orjson
from blake3 import blake3

from flowmesh_core.dataset.columns import Columns, columns_of, json_form
from flowmesh_core.dataset.schema import Column, ColumnType, Schema
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import PREFIX, digest_value
from flowmesh_core.units import Digest

_REMEMBERED_CELLS = 1 << 16
"""Headers of rows with nulls are remembered up to so many cells: 2 to 4 MiB."""


def row_digest(row: Mapping[str, Any], schema: Schema) -> Digest:
    """Returns the digest of one row; missing columns are null.

    Raises:
        IdentityError: a value does not fit its column, or a column is unknown.
    """
    return row_digests(columns_of([row], schema), schema, 1)[0]


def row_digests(columns: Columns, schema: Schema, count: int) -> list[Digest]:
    """Returns the digests of rows given by column.

    Args:
        columns: from :func:`columns_of`, so typed and normalised.
        schema: the schema that they were typed by.
        count: how many rows.
    """
    forms = {c.name: json_form(columns[c.name], c) for c in schema.columns}
    return row_digests_of_forms(forms, schema, count)


def row_digests_of_forms(forms: Columns, schema: Schema, count: int) -> list[Digest]:
    """Returns the digests of rows whose columns are in the form of :func:`json_form`.

    Args:
        forms: one value per row; None for null.
        schema: the columns.
        count: how many rows.
    """
    if not schema.columns:
        return [digest_value("row", [[], []])] * count
    in_order = [forms[name] for name in schema.names]
    prefixes: Iterable[bytes]
    if any(None in values for values in in_order):
        prefixes = _prefixes_with_nulls(in_order, schema.columns)
    else:
        prefixes = repeat(_prefix(tuple(c.type for c in schema.columns), schema.columns))
    # One hasher for all rows, and no hexdigest(): both cost more than the hash of a short row.
    dumps, hasher, digests = orjson.dumps, blake3(), list[str]()
    try:
        for prefix, row in zip(prefixes, zip(*in_order, strict=True), strict=False):
            hasher.reset()
            hasher.update(prefix + dumps(row))
            digests.append(hasher.digest().hex())
    except orjson.JSONEncodeError as e:  # columns_of refuses all but text with surrogates
        raise IdentityError(f"a row has no canonical form: {e}") from e
    return cast("list[Digest]", digests)


def rows_digest(digests: Sequence[Digest]) -> Digest:
    """Returns the digest of a chunk: its rows' digests in order."""
    return digest_value("rows", list(digests))


def _prefix(types: Sequence[ColumnType], columns: Sequence[Column]) -> bytes:
    header = [[c.name, t.value] for c, t in zip(columns, types, strict=True)]
    return PREFIX + b"row\0" + canonical_bytes(header)


def _prefixes_with_nulls(
    in_order: Sequence[Sequence[Any]], named: Sequence[Column]
) -> Iterable[bytes]:
    known: dict[tuple[bool, ...], bytes] = {}
    # The header of each row is put together from those of its columns, as there may be as many
    # headers as rows.
    typed = [canonical_bytes([c.name, c.type.value]) for c in named]
    null = [canonical_bytes([c.name, ColumnType.NULL.value]) for c in named]
    masks = zip(*([v is None for v in values] for values in in_order), strict=True)
    for mask in masks:
        prefix = known.get(mask)
        if prefix is None:
            if (len(known) + 1) * len(named) > _REMEMBERED_CELLS:
                known.clear()
            parts = [n if m else t for m, n, t in zip(mask, null, typed, strict=True)]
            prefix = known[mask] = PREFIX + b"row\0[" + b",".join(parts) + b"]"
        yield prefix
