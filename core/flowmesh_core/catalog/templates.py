"""The one way templates over rows are read: by the compiler, to check them, and by engines.

A template sees each column of the row as a name, and all of them as ``row`` (for columns whose
names are not identifiers: ``{{ row["my column"] }}``). It reaches no Python objects, draws no
random numbers and reads no clock, so equal rows render equal text. Lists, objects and booleans are
printed as JSON (see ``template_text``). An undefined name is an error, and so is a null where a
value is printed.

Tenants write templates. The control plane parses them and walks their trees; only an engine host
compiles them, without folding constants, so that everything a template makes is made, and counted,
in rendering.
"""

from functools import cache, lru_cache
from typing import Any, ClassVar

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes, pass_context
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.meta import TrackingCodeGenerator
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from flowmesh_core.catalog.template_filters import (
    GROWING,
    NamespaceValue,
    bound_format,
    bound_method,
    bound_widths,
    bounded_filters,
    copied,
    counted,
    joined,
    made,
)
from flowmesh_core.catalog.template_meter import (
    BITS_MAX,
    MADE_MAX,
    RenderingMeter,
    small_number,
)
from flowmesh_core.catalog.template_text import text_of

ROW = "row"
TAGS_MAX = 4_000
"""Statements, and their ends, of a template: analysing their scopes takes time for each."""
PRINTS_MAX = 20_000
_COUNTED, _JOINED, _MADE, _COPIED = "_counted", "_joined", "_made", "_copied"
_RANDOM_GLOBALS = ("lipsum",)
_RANDOM_FILTERS = ("random",)
_BRACKETS_MAX = 198
_INDENTS_MAX = 98
_LOOPS_MAX = 20
"""Python reads no code that is nested more deeply (200, 100, 20)."""
_TOO_DEEP = "nested too deeply"


class _Rendering(Context):
    """One rendering, with its meter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meter = RenderingMeter()

    def derived(self, locals: dict[str, Any] | None = None) -> Context:  # noqa: A002 - jinja2's name
        """A block's view of the same rendering."""
        inner = super().derived(locals)
        if isinstance(inner, _Rendering):
            inner.meter = self.meter
        return inner

    def joined(self, parts: list[str]) -> str:
        """Returns what a macro or a block printed."""
        self.meter.print(sum(map(len, parts)))
        return "".join(parts)


class _Counting(NodeTransformer):
    """Adds counters to loops, ``~``, slices, and lists, tuples and maps."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        first, *rest = node.nodes
        return _filtered(first, _JOINED, rest)

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return node if _constant(node) else _filtered(node, _MADE)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return node if not node.items else _filtered(node, _MADE)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return _filtered(node, _COPIED) if isinstance(node.arg, nodes.Slice) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return node if node.ctx != "load" or _constant(node) else _filtered(node, _MADE)


def _filtered(node: Any, name: str, args: list[nodes.Expr] | None = None) -> nodes.Filter:
    return nodes.Filter(node, name, args or [], [], None, None, lineno=node.lineno)


def _constant(node: nodes.List | nodes.Tuple) -> bool:
    return all(isinstance(item, nodes.Const) for item in node.items)


class _Generator(CodeGenerator):
    """Writes the Python of a template: no constant is folded, and what blocks print is counted."""

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("concat = context.joined")

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Refuses values that would exhaust a worker's memory, and loops that would not end."""

    context_class = _Rendering
    code_generator_class = _Generator
    intercepted_binops: ClassVar[frozenset[str]] = frozenset({"+", "*", "**", "%"})  # type: ignore[misc]

    @staticmethod
    def concat(parts: Any) -> str:
        """Returns what a block printed that was called as ``self.name()``."""
        meter, pieces = RenderingMeter(), []
        for part in parts:
            meter.print(len(part))
            pieces.append(part)
        return "".join(pieces)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parses a template and adds the counters."""
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in jinja2, so that a macro may have an argument of any name
        """Calls a function for a template; a recursive loop's inner iterations count too."""
        meter: RenderingMeter = __context.meter
        meter.turn()
        if isinstance(__obj, LoopContext) and args:
            args = (counted(__context, args[0]), *args[1:])
        name = getattr(__obj, "__name__", "")
        if name == "join" and args and not hasattr(args[0], "__len__"):
            args = (list(meter.items(args[0])), *args[1:])
        if name in GROWING:
            on = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
            bound_method(meter, name, on, (*args, *kwargs.values()))
        result = super().call(__context, __obj, *args, **kwargs)
        grows = name in GROWING or __obj is dict
        return meter.makes(result) if grows else meter.copies(result)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Adds, multiplies and formats within the limits."""
        meter: RenderingMeter = context.meter
        if operator == "%" and isinstance(left, str | bytes):
            text = left if isinstance(left, str) else left.decode("latin-1")
            bound_format(meter, text, "%", right)
            if "*" in text:
                bound_widths(right if isinstance(right, tuple) else (right,))
            return meter.makes(super().call_binop(context, operator, left, right))
        size = _size_of(operator, left, right)
        if size > MADE_MAX:
            raise SecurityError(f"a value of size {size:g}, of at most {MADE_MAX}")
        result = super().call_binop(context, operator, left, right)
        return small_number(result) if isinstance(result, int) else meter.makes(result)


@pass_context
def _finalized(rendering: _Rendering, value: Any) -> Any:
    """Returns the text of a printed value, counted; refuses a null."""
    rendering.meter.print(1 + rendering.meter.size(value))
    return text_of(value)


def _size_of(operator: str, left: Any, right: Any) -> float:
    """Returns the size of a sum or product; 0 for a number, which is checked by itself.

    Raises:
        SecurityError: an integer would have too many digits.
    """
    sizes = [len(v) if hasattr(v, "__len__") else None for v in (left, right)]
    if operator == "+":
        return sum(size or 0 for size in sizes)
    if operator == "*" and sizes != [None, None]:
        counts = [v if s is None else s for s, v in zip(sizes, (left, right), strict=True)]
        return float(counts[0] * counts[1]) if all(isinstance(c, int) for c in counts) else 0
    if operator == "**" and isinstance(left, int) and isinstance(right, int) and abs(left) > 1:
        bits = (left.bit_length() - 1) * right
        if bits > BITS_MAX:
            raise SecurityError(f"an integer of {bits} bits, of at most {BITS_MAX}")
    return 0


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """Returns the sandboxed environment; made once, never changed."""
    return limited_environment(undefined=StrictUndefined, keep_trailing_newline=True)


def limited_environment(**options: Any) -> ImmutableSandboxedEnvironment:
    """Returns a sandboxed environment with the limits of this module, and further options."""
    env = _Sandbox(autoescape=False, finalize=_finalized, optimized=False, **options)
    env.filters = {
        **bounded_filters(env.filters),
        _COUNTED: counted,
        _JOINED: joined,
        _MADE: made,
        _COPIED: copied,
    }
    env.globals["namespace"] = NamespaceValue
    for name in _RANDOM_GLOBALS:
        env.globals.pop(name, None)
    for name in _RANDOM_FILTERS:
        env.filters.pop(name, None)
    return env


def context(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the names that a template sees of a row; a column named ``row`` has its own value."""
    return {ROW: row, **row}


class _Walk(TrackingCodeGenerator):
    """Finds the names that a template reads, and what the compiler would refuse; writes nothing."""

    def __init__(self, env: ImmutableSandboxedEnvironment) -> None:
        super().__init__(env)
        self.optimizer = None  # it would compute what is constant
        self.too_deep = False
        self._open = 0
        self._loops = 0

    def write(self, x: str) -> None:
        """Counts brackets, as Python's parser will; a quoted text is a constant."""
        if x[:1] not in {"'", '"'}:
            self._open += sum(map(x.count, "([{")) - sum(map(x.count, ")]}"))
        deep = self._open > _BRACKETS_MAX or self._indentation > _INDENTS_MAX
        self.too_deep = self.too_deep or deep

    def newline(self, node: nodes.Node | None = None, extra: int = 0) -> None:
        """Begins a line of Python, with its brackets counted anew."""
        super().newline(node, extra)
        self._open = 0

    def visit_For(self, node: nodes.For, frame: Any) -> None:  # noqa: N802 - jinja2's name
        self._loops += 1
        self.too_deep = self.too_deep or self._loops > _LOOPS_MAX
        super().visit_For(node, frame)
        self._loops -= 1

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


@lru_cache(maxsize=4096)
def undeclared(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns a template's problem (empty where there is none), and the columns that it names.

    Its tree is walked; nothing is compiled or computed.
    """
    return names_read(text, environment())


def names_read(text: str, env: ImmutableSandboxedEnvironment) -> tuple[str, tuple[str, ...]]:
    """Returns what :func:`undeclared` does, of a template of another environment."""
    if "{" not in text:
        return "", ()
    walk = _Walk(env)
    problem = _too_long(text)
    try:
        if not problem:
            walk.visit(env.parse(text))
    except TemplateSyntaxError as e:
        problem = f"{e.message} (line {e.lineno} of it)"
    except RecursionError:
        problem = _TOO_DEEP
    except ValueError as e:
        problem = str(e)
    if walk.too_deep:
        problem = problem or _TOO_DEEP
    if problem:
        return f"not a template: {problem}", ()
    return "", tuple(sorted(walk.undeclared_identifiers - set(env.globals) - {ROW}))


def _too_long(text: str) -> str:
    if (tags := text.count("{%")) > TAGS_MAX:
        return f"{tags:,} times '{{%', of at most {TAGS_MAX:,}"
    if (prints := text.count("{{")) > PRINTS_MAX:
        return f"{prints:,} times '{{{{', of at most {PRINTS_MAX:,}"
    return ""
