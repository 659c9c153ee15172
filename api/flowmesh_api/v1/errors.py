"""The document of every error, whatever its status: place, reason and remedy."""

import msgspec

from flowmesh_api.v1.problems import Problem

DAMAGED_RECORD = "damaged-record"
"""The code of an error 500 whose cause is a damaged record in the store."""
STORE_ACCESS = "store-access"
"""The code of an error 500 whose cause is a read-only store."""

QUOTA = "quota"
"""The code of an error 403 or 429: the namespace has, or asks for, more than its quota allows."""


class ErrorDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong.

    Attributes:
        message: the reason.
        where: the place: a field, a path, a record's key; may be empty.
        remedy: what to do; may be empty.
        problems: every mistake of a workflow that was refused.
        code: ``DAMAGED_RECORD``, ``STORE_ACCESS``, ``QUOTA`` or empty.
    """

    message: str
    where: str
    remedy: str
    problems: tuple[Problem, ...]
    code: str = ""


class ErrorDocument(msgspec.Struct, frozen=True):
    """The body of a response with a status of 400 or more."""

    error: ErrorDetails
