"""The filters and methods of templates whose result may be much larger than their input.

Used by ``templates``. The results are those of Jinja's own filters, but for ``tojson``, which
writes plain JSON, and for filters on texts, which see a list, an object or a boolean as its JSON.
Their size is estimated before, and counted after, in the rendering's meter.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Environment, filters, pass_context, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, markup_join, str_join
from jinja2.utils import Namespace
from markupsafe import soft_str

from flowmesh_core.catalog.template_meter import (
    MADE_MAX,
    RenderingMeter,
    refuse_large,
    small_number,
)
from flowmesh_core.catalog.template_text import INDENT_MAX, json_of, text_of

WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes"})
FORMATTING = frozenset({"format", "format_map"})
GROWING = WIDENING | FORMATTING | {"replace", "join", "translate", "fromkeys", "split", "encode"}
"""Methods whose result may be larger than their input."""
PLACES_MAX = 400
"""Decimal places: beyond this a rounded number is 0 or infinite."""
COPIES_MAX = 20_000_000_000
"""Characters that are moved while a text is cut piece by piece."""
_DIGITS = re.compile(r"\d+")
_DIGITS_READ = 20


def bound_widths(values: Iterable[Any]) -> int:
    """Returns the sum of widths, refusing those that are too large.

    Raises:
        SecurityError: one is.
    """
    total = 0
    for value in values:
        if isinstance(value, int):
            if value > MADE_MAX:
                raise SecurityError(f"a width of {value}, of at most {MADE_MAX}")
            total += max(0, value)
    return total


def numbers_in(pattern: str) -> list[int]:
    """Returns the numbers in a format."""
    return [int(digits[:_DIGITS_READ]) for digits in _DIGITS.findall(pattern)]


def bound_format(meter: RenderingMeter, text: str, sign: str, values: Any) -> None:
    """Refuses a format whose result would be far larger than its input.

    Args:
        meter: of the rendering.
        text: the format.
        sign: with which a field begins.
        values: to format.

    Raises:
        SecurityError: it would be.
    """
    widths = bound_widths(numbers_in(text))
    refuse_large(len(text) + widths + text.count(sign) * meter.size(values), "formatted text")


def bound_method(meter: RenderingMeter, name: str, on: Any, args: tuple[Any, ...]) -> None:
    """Refuses a call of a method whose result would be too large.

    Args:
        meter: of the rendering.
        name: of the method.
        on: the object; None where it has none.
        args: positional arguments, then the values of the others.

    Raises:
        SecurityError: it would be.
    """
    if name in WIDENING or name in FORMATTING:
        bound_widths(args)
    if not isinstance(on, str | bytes):
        return
    largest = max(map(meter.size, args), default=0)
    if name in FORMATTING and isinstance(on, str):
        bound_format(meter, on, "{", list(args))
    elif name == "replace" and len(args) > 1 and all(isinstance(a, str | bytes) for a in args[:2]):
        refuse_large(_replaced_size(on, *args[:3]), "text")
    elif name == "join" and args:
        refuse_large(len(on) * _length(args[0]) + largest, "joined text")
    elif name == "translate":
        table = args[0] if args and isinstance(args[0], dict) else {}
        refuse_large(len(on) * max(map(meter.size, table.values()), default=1), "text")
    elif name == "expandtabs":
        tabs = on.count("\t") if isinstance(on, str) else on.count(b"\t")
        refuse_large(len(on) + tabs * bound_widths(args), "text")


def _length(values: Any) -> int:
    return len(values) if hasattr(values, "__len__") else MADE_MAX


def _replaced_size(text: Any, old: Any, new: Any, count: Any = None) -> int:
    found = len(text) + 1 if not old else text.count(old)
    if isinstance(count, int) and count >= 0:
        found = min(found, count)
    return len(text) + found * (len(new) - len(old))


@pass_context
def counted(context: Context, values: Iterable[Any]) -> Iterable[Any]:
    """Returns a loop's values, each counted as an iteration."""
    return _meter(context).turns_of(values)


@pass_context
def joined(context: Context, *values: Any) -> str:
    """Returns the result of ``~``, counted."""
    meter = _meter(context)
    refuse_large(sum(map(meter.size, values)), "text")
    values = tuple(map(text_of, values))
    result = markup_join(values) if context.eval_ctx.autoescape else str_join(values)
    return meter.makes(result)  # type: ignore[no-any-return]


@pass_context
def made(context: Context, value: Any) -> Any:
    """Returns a list, tuple or map of the template, counted."""
    return _meter(context).makes(value)


@pass_context
def copied(context: Context, value: Any) -> Any:
    """Returns a part of a text or a list, counted."""
    return _meter(context).copies(value)


def _meter(context: Context) -> RenderingMeter:
    meter: RenderingMeter = context.meter  # type: ignore[attr-defined]
    return meter


def _replace(meter: RenderingMeter, s: Any, old: Any, new: Any, count: Any = None) -> None:
    refuse_large(_replaced_size(str(s), str(old), str(new), count), "text")


def _center(_: RenderingMeter, __: Any, width: Any = 80) -> None:
    bound_widths([width])


def _format(meter: RenderingMeter, text: Any, *args: Any, **kwargs: Any) -> None:
    bound_format(meter, str(text), "%", [*args, *kwargs.values()])
    if "*" in str(text):
        bound_widths(args)


def _indent(_: RenderingMeter, s: Any, width: Any = 4, *__: Any, **___: Any) -> None:
    size = len(width) if isinstance(width, str) else int(width)
    refuse_large(len(s) + (len(s.splitlines()) + 1) * size, "text")


def _batch(_: RenderingMeter, __: Any, linecount: Any, fill_with: Any = None) -> None:
    if fill_with is not None:
        bound_widths([linecount])


def _slice(_: RenderingMeter, __: Any, slices: Any, fill_with: Any = None) -> None:
    bound_widths([slices])


def _wordwrap(
    _: RenderingMeter,
    s: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> None:
    longest = max(map(len, s.split()), default=0)
    if isinstance(width, int) and longest * longest > COPIES_MAX * max(1, width):
        raise SecurityError(f"a word of {longest:,} characters in lines of {width}")
    refuse_large(len(s) * len(wrapstring or "\n"), "text")


def _urlize(
    _: RenderingMeter, value: Any, trim: Any = None, nofollow: Any = False, *args: Any, **more: Any
) -> None:
    links = sum(map(str(value).count, ".:@"))
    added = sum(len(a) for a in (*args, *more.values()) if isinstance(a, str))
    refuse_large(len(str(value)) + links * added, "text")


def _tojson(_: RenderingMeter, __: Any, indent: Any = None) -> None:
    size = len(indent) if isinstance(indent, str) else indent
    if size is not None and size > INDENT_MAX:
        raise SecurityError(f"an indent of {size}, of at most {INDENT_MAX}")


def _round(_: RenderingMeter, __: Any, precision: Any = 0, method: Any = "common") -> None:
    if isinstance(precision, int) and abs(precision) > PLACES_MAX:
        raise SecurityError(f"a precision of {precision}, of at most {PLACES_MAX}")


def _striptags(_: RenderingMeter, value: Any) -> None:
    text = str(value)
    if text.count("<") * len(text) > COPIES_MAX:
        raise SecurityError(f"{text.count('<'):,} tags in a text of {len(text):,} characters")


def _join(meter: RenderingMeter, value: Any, d: Any = "", attribute: Any = None) -> None:
    refuse_large(_length(value) * len(str(d)) + meter.size(value), "joined text")


def _nothing(*_: Any, **__: Any) -> None:
    pass


_ESTIMATES: Mapping[str, Callable[..., None]] = {
    "replace": _replace,
    "center": _center,
    "format": _format,
    "indent": _indent,
    "batch": _batch,
    "slice": _slice,
    "wordwrap": _wordwrap,
    "urlize": _urlize,
    "tojson": _tojson,
    "round": _round,
    "striptags": _striptags,
    "join": _join,
    "xmlattr": _nothing,
    "pprint": _nothing,
}
_LAZY = frozenset({"batch", "slice"})
"""Filters that return an iterator, whose items are counted one by one."""
_SHORTENING = frozenset({"round", "striptags"})
_OF_TEXT = frozenset(
    {
        *("capitalize", "center", "e", "escape", "forceescape", "format", "indent", "lower"),
        *("replace", "striptags", "title", "trim", "truncate", "upper", "urlize", "wordcount"),
        "wordwrap",
    }
)
"""Filters on a text, which would otherwise see another value in Python's notation."""


def bounded_filters(known: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Returns Jinja's filters, with limits for those whose result may grow.

    Args:
        known: of an environment.
    """
    copying = {name: _copying(name, function) for name, function in known.items()}
    known = {**known, "tojson": _plain_json, "join": _join_texts}
    bounded = {name: _bounded(name, known[name], e) for name, e in _ESTIMATES.items()}
    return {**copying, **bounded, "list": _list, "sum": _sum, "string": _string}


def _copying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a filter whose result is never larger than its input."""
    first = filters_argument(function)

    @pass_context
    def copying(context: Context, *args: Any, **kwargs: Any) -> Any:
        if args and name in _OF_TEXT:
            args = (text_of(args[0]), *args[1:])
        return _meter(context).copies(function(*first(context), *args, **kwargs))

    return copying


def _bounded(
    name: str, function: Callable[..., Any], estimate: Callable[..., None]
) -> Callable[..., Any]:
    first = filters_argument(function)

    @pass_context
    def bounded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        meter = _meter(context)
        if name == "join" and not hasattr(value, "__len__"):
            value = list(meter.items(value))
        if name in _OF_TEXT:
            value = text_of(value)
        estimate(meter, value, *args, **kwargs)
        result = function(*first(context), value, *args, **kwargs)
        if name in _LAZY:
            return (meter.makes(item) for item in result)
        return meter.copies(result) if name in _SHORTENING else meter.makes(result)

    return bounded


def filters_argument(function: Callable[..., Any]) -> Callable[[Context], tuple[Any, ...]]:
    """Returns the first arguments that Jinja passes to a filter: context, a part of it, or none."""
    kind = getattr(getattr(function, "jinja_pass_arg", None), "name", "")
    if kind == "context":
        return lambda context: (context,)
    if kind == "eval_context":
        return lambda context: (context.eval_ctx,)
    if kind == "environment":
        return lambda context: (context.environment,)
    return lambda _: ()


@pass_context
def _list(context: Context, value: Any) -> Any:
    meter = _meter(context)
    return meter.checked(filters.sync_do_list(meter.items(value)))


@pass_context
def _string(context: Context, value: Any) -> Any:
    """Returns what is printed for a value."""
    return value if isinstance(value, str) else _meter(context).makes(soft_str(text_of(value)))


@pass_environment
def _join_texts(environment: Environment, value: Any, d: Any = "", attribute: Any = None) -> str:
    """Returns what is printed for each item, with the text ``d`` between them."""
    if attribute is not None:
        value = map(filters.make_attrgetter(environment, attribute), value)
    return str(text_of(d)).join(str(text_of(item)) for item in value)


def _plain_json(value: Any, indent: int | str | None = None) -> str:
    """Returns a value as JSON, without the escapes that Jinja adds for HTML pages."""
    return json_of(value, indent)


@pass_context
def _sum(context: Context, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Numbers as Jinja adds them; lists one after the other, each result counted."""
    if isinstance(start, int | float):
        found = filters.sync_do_sum(context.environment, iterable, attribute, start)
        return small_number(found)
    meter, total = _meter(context), sum([], start)
    if attribute is not None:
        iterable = map(filters.make_attrgetter(context.environment, attribute), iterable)
    for value in iterable:
        total = meter.makes(sum([value], total))
    return total


class NamespaceValue(Namespace):
    """``namespace`` that prints without its content, which may contain the namespace itself."""

    def __repr__(self) -> str:
        """Returns a fixed text."""
        return "<Namespace>"
