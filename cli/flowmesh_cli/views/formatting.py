"""Formats numbers for people. ``~`` before a number marks an estimate."""

import time
from decimal import Decimal

from flowmesh_core.units import NANO_PER_USD, usd_text

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_KWH_FROM_J = 10_000


def usd(nanousd: int, *, estimated: bool = False) -> str:
    """Formats nano-dollars with as many places as they need: ``$1.25``, ``$0.000123``."""
    text = usd_text(nanousd)
    return f"~{text}" if estimated and nanousd else text


def exact_usd(nanousd: int) -> str:
    """Formats nano-dollars with all nine places."""
    return f"${Decimal(nanousd) / NANO_PER_USD:.9f}"


def seconds(value: float) -> str:
    """Formats a duration: ``0.4s``, ``12s``, ``3m05s``, ``2h10m``, ``3d4h``."""
    if value < 10:  # noqa: PLR2004 - below ten seconds a tenth is worth showing
        return f"{value:.1f}s"
    whole = round(value)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR}h"


def clock(time_s: float) -> str:
    """Formats a time of day in local time."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def date(time_s: float) -> str:
    """Formats a date and time in local time; a dash for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s)) if time_s else "-"


def size(count: float) -> str:
    """Formats bytes: ``512 B``, ``3.4 KiB``, ``1.2 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - the binary prefix
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def joules(value: float, *, estimated: bool) -> str:
    """Formats energy; marked where it is estimated."""
    return _energy(value, estimated=estimated, in_kwh=value >= _KWH_FROM_J)


def energies(*values: float) -> list[str]:
    """Formats estimated energies beside each other, in the unit of the smallest that is not 0."""
    in_kwh = min(filter(None, values), default=0.0) >= _KWH_FROM_J
    return [_energy(value, estimated=True, in_kwh=in_kwh) for value in values]


def _energy(value: float, *, estimated: bool, in_kwh: bool) -> str:
    text = f"{value / 3_600_000:.3f} kWh" if in_kwh else f"{value:.0f} J"
    return f"~{text}" if estimated and value else text


def scope(name: str) -> str:
    """Formats a scope for users: ``team-a``, ``group friends``, ``all namespaces``."""
    from flowmesh_core.sharing.scopes import (  # noqa: PLC0415 - loads the engine contracts
        ALL_SCOPE,
        group_scope,
        namespace_scope,
    )

    if name == ALL_SCOPE:
        return "all namespaces"
    for beginning, shown in ((namespace_scope(""), ""), (group_scope(""), "group ")):
        if name.startswith(beginning):
            return shown + name.removeprefix(beginning)
    return name


def count(number: float, noun: str) -> str:
    """Formats a number with its noun: ``1 step``, ``3 steps``."""
    return f"{number:g} {noun}" + ("" if number == 1 else _plural(noun))


def _plural(noun: str) -> str:
    return "es" if noun.endswith(("s", "sh", "ch", "x")) else "s"
