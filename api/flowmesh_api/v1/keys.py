"""Master keys as the API shows them: ids and counts, never a key."""

import msgspec


class PublicKey(msgspec.Struct, frozen=True):
    """The Ed25519 key, derived from a master key, with which signatures are verified.

    Attributes:
        key_id: the id of the master key.
        key: 32 bytes in base64.
    """

    key_id: str
    key: str


class MasterKeys(msgspec.Struct, frozen=True):
    """``GET /v1/keys``.

    Attributes:
        newest: the id of the key that seals records and signs references.
        ids: all keys that verify, newest first.
        retired: former keys; what was sealed with them counts as not sealed.
        records: how many records each key seals, by id, also of keys that are missing.
        unsealed: records without a valid seal, which are not believed.
        public_keys: verify the signatures of the request log, also those of former keys.
    """

    newest: str
    ids: tuple[str, ...]
    retired: tuple[str, ...]
    records: dict[str, int]
    unsealed: int = 0
    public_keys: tuple[PublicKey, ...] = ()


class ResealReport(msgspec.Struct, frozen=True):
    """``POST /v1/keys/reseal``.

    Attributes:
        newest: the key with which all readable records are sealed now.
        resealed: records that were written again.
        left: records with another seal that could not be read, or changed meanwhile.
    """

    newest: str
    resealed: int
    left: int


class RetireBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /v1/keys/retire``.

    Attributes:
        key_id: the key; not the newest one.
        lose_results: retire it although records are sealed with it.
    """

    key_id: str
    lose_results: bool = False


class RetireReport(msgspec.Struct, frozen=True):
    """A key that was retired, and how many records are lost with it."""

    key_id: str
    lost: int
