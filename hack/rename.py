"""Renames classes, functions, constants, attributes and modules wherever they are used.

``python hack/rename.py TABLE`` reads a JSON file with three tables, keyed by the full dotted name.
``names`` gives the new last part of a class, function or constant. ``attributes`` gives that of a
method or field; types are not checked, so every class with one of that name must be in the table.
``modules`` gives the new dotted name of a module, whose file is moved with git.

Names are resolved through imports and scopes, so that a local variable or another class of the same
name stays as it is. In comments, docstrings and pages a name changes where it stands in backticks
and means one thing in the whole repository; module names and file paths change in every text file.
Run ``make format`` afterwards, and read the difference: strings that hold code are not understood.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = ("api", "core", "store", "control", "operator", "worker", "cli", "sim")
PROSE = re.compile(r"(?P<ticks>`+)(?P<text>[^`\n]+)(?P=ticks)")
REEXPORTS = 10
"""More packages than this do not pass a name on."""
LEFT_ALONE = {Path("hack/rename.py"), Path("CHANGELOG.md"), Path("docs/names.md")}
MARK = "\0"
"""Stands in names that are new already, until the file is written."""
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tracked() -> list[Path]:
    """Returns every file that git knows, as a path from the root."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout
    return [Path(name) for name in names.split("\0") if name and Path(name).is_file()]


def module_of(path: Path) -> str:
    """Returns the dotted name of the module in a file."""
    parts = path.with_suffix("").parts
    if parts[0] in ROOTS and len(parts) > 1 and parts[1].startswith("flowmesh_"):
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def path_of(module: str) -> Path:
    """Returns the file of a module, without its suffix; for a package its folder."""
    package, *rest = module.split(".")
    root = package.removeprefix("flowmesh_")
    return Path(package, *rest) if root == package else Path(root, package, *rest)


@dataclass(slots=True)
class Source:
    """A Python file: its text, its tree and what its top level binds."""

    path: Path
    text: str
    tree: ast.Module
    module: str
    bound: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edit:
    """Text that replaces what stands from one place to another (line from 1, column in bytes)."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Project:
    """All Python files, and what each dotted name stands for."""

    def __init__(self, paths: list[Path]) -> None:
        """Reads and parses the files."""
        self.sources: dict[str, Source] = {}
        for path in paths:
            text = path.read_text(encoding="utf-8")
            module = module_of(path)
            self.sources[module] = Source(path, text, ast.parse(text, str(path)), module)
        for source in self.sources.values():
            source.bound = self._bindings(source, source.tree.body)

    def _bindings(self, source: Source, body: list[ast.stmt]) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in _statements(body):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    found[node.name] = f"{source.module}.{node.name}"
                case ast.Import() | ast.ImportFrom():
                    found |= imported(node)
                case _:
                    for name in _targets(node):
                        found[name] = f"{source.module}.{name}"
        return found

    def origin(self, dotted: str, depth: int = 0) -> str:
        """Returns where a name that may be re-exported is defined."""
        module, _, name = dotted.rpartition(".")
        source = self.sources.get(module)
        bound = dotted if source is None else source.bound.get(name, dotted)
        return dotted if bound == dotted or depth > REEXPORTS else self.origin(bound, depth + 1)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a scope, also those inside ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, None)
            if inner and not isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ):
                for one in inner:
                    if isinstance(one, ast.ExceptHandler | ast.match_case):
                        yield from _statements(one.body)
                    else:
                        yield from _statements([one])


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Returns local name -> dotted name of an import."""
    if isinstance(node, ast.ImportFrom):
        return {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {a.asname or a.name.split(".")[0]: (a.asname and a.name) or a.name.split(".")[0]
            for a in node.names}  # fmt: skip


def _targets(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds by itself, without imports, classes and functions."""
    for inner in _own_nodes(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, but for the bodies of inner scopes and inner statements."""
    yield node
    if isinstance(
        node,
        ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp,
    ):  # fmt: skip
        return
    for child in ast.iter_child_nodes(node):
        yield from _own_nodes(child)


class AttributeRenamer(ast.NodeVisitor):
    """Collects the edits of one file that rename attributes, whatever they are attributes of."""

    def __init__(self, source: Source, attributes: Mapping[str, str]) -> None:
        """Prepares for one file, with old -> new names of attributes."""
        self._lines = source.text.splitlines(keepends=True)
        self._new = attributes
        self.edits: list[Edit] = []

    def _replace(self, line: int, end_column: int, old: str) -> None:
        start = end_column - len(old)
        self.edits.append(Edit(line, start, line, end_column, self._new[old]))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Fields and methods are renamed where they are defined."""
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign | ast.Assign):
                targets = getattr(statement, "targets", None) or [statement.target]  # type: ignore[union-attr]
                for target in targets:
                    if isinstance(target, ast.Name) and target.id in self._new:
                        self._replace(target.lineno, target.end_col_offset or 0, target.id)
            elif (
                isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
                and statement.name in self._new
            ):
                line = self._lines[statement.lineno - 1]
                found = re.search(rf"\bdef\s+{statement.name}\b", line)
                assert found is not None
                end = len(line[: found.end()].encode())
                self._replace(statement.lineno, end, statement.name)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """``anything.name``."""
        self.generic_visit(node)
        if node.attr in self._new:
            self._replace(node.end_lineno or 0, node.end_col_offset or 0, node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        """``Class(name=...)``, ``replace(x, name=...)`` and ``setattr(x, "name", ...)``."""
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg in self._new:
                self._replace(keyword.lineno, keyword.col_offset + len(keyword.arg), keyword.arg)
        for inner in node.args[1:2]:
            value = inner.value if isinstance(inner, ast.Constant) else None
            if isinstance(value, str) and value in self._new:
                self._replace(inner.lineno, (inner.end_col_offset or 0) - 1, value)
        self.generic_visit(node)


def attribute_table(project: Project, attributes: Mapping[str, str]) -> dict[str, str]:
    """Returns old -> new names of attributes.

    Raises:
        SystemExit: a class outside the table has an attribute of that name, or one in it has not.
    """
    owners: dict[str, set[str]] = {}
    for source in project.sources.values():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                for name in attributes_of(node):
                    owners.setdefault(name, set()).add(f"{source.module}.{node.name}")
    found: dict[str, str] = {}
    for old, new in attributes.items():
        owner, _, name = old.rpartition(".")
        known = {o for o in owners.get(name, set()) if o.startswith("flowmesh_")}
        listed = {o.rpartition(".")[0] for o in attributes if o.rpartition(".")[2] == name}
        if owner not in known or known - listed:
            sys.exit(f"{old}: {name!r} is an attribute of {sorted(known)}")
        found[name] = new
    return found


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Returns the names of fields, methods and of what methods assign to ``self``."""
    found = set()
    for statement in ast.walk(node):
        match statement:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


class Renamer(ast.NodeVisitor):
    """Collects the edits of one file."""

    def __init__(
        self, project: Project, source: Source, names: Mapping[str, str], modules: Mapping[str, str]
    ) -> None:
        """Prepares for one file, with the tables' ``names`` and ``modules``."""
        self._project = project
        self._source = source
        self._names = names
        self._modules = modules
        self._lines = source.text.splitlines(keepends=True)
        self._scopes: list[dict[str, str | None]] = [dict(source.bound)]
        self.edits: list[Edit] = []

    # -- scopes ----------------------------------------------------------------------------------

    def _resolve(self, name: str) -> str | None:
        for scope in reversed(self._scopes):
            if name in scope:
                found = scope[name]
                return None if found is None else self._project.origin(found)
        return None

    def _inner(self, body: list[ast.stmt], bound: set[str]) -> dict[str, str | None]:
        scope: dict[str, str | None] = dict.fromkeys(bound)
        leave: set[str] = set()
        for node in _statements(body):
            match node:
                case ast.Import() | ast.ImportFrom():
                    scope |= imported(node)
                case ast.Global() | ast.Nonlocal():
                    leave |= set(node.names)
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    scope[node.name] = None
                case _:
                    scope |= dict.fromkeys(_targets(node))
        return {name: value for name, value in scope.items() if name not in leave}

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for one in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if one is not None:
                self.visit(one)
        arguments = [
            *node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs,
            *filter(None, (node.args.vararg, node.args.kwarg)),
        ]  # fmt: skip
        for argument in arguments:
            self._annotation(argument.annotation)
        self._annotation(node.returns)
        if len(self._scopes) == 1:
            self._definition(node)
        self._scopes.append(self._inner(node.body, {a.arg for a in arguments}))
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    visit_FunctionDef = _function  # noqa: N815 - the name that ast asks for
    visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Arguments hide names of the module."""
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        for one in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(one)
        self._scopes.append(dict.fromkeys(a.arg for a in given))
        self.visit(node.body)
        self._scopes.pop()

    def _comprehension(self, node: ast.AST) -> None:
        targets = {
            name for g in node.generators for name in _targets(g.target)  # type: ignore[attr-defined]
        }  # fmt: skip
        self._scopes.append(dict.fromkeys(targets))
        self.generic_visit(node)
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Names in a class body are seen there alone; methods see the module."""
        for one in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(one)
        if len(self._scopes) == 1:
            self._definition(node)
        scope = self._inner(node.body, set())
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.visit(statement)
            elif isinstance(statement, ast.AnnAssign):
                self._annotation(statement.annotation)
                self._scopes.append({} if statement.value is None else scope)
                if statement.value is not None:
                    self.visit(statement.value)
                self._scopes.pop()
            else:
                self._scopes.append(scope)
                self.visit(statement)
                self._scopes.pop()

    # -- edits -----------------------------------------------------------------------------------

    def _definition(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        new = self._names.get(f"{self._source.module}.{node.name}")
        if new is None:
            return
        line = self._lines[node.lineno - 1]
        at = re.search(rf"\b(?:class|def)\s+{re.escape(node.name)}\b", line)
        assert at is not None, (self._source.path, node.name)
        start = len(line[: at.end() - len(node.name)].encode())
        self._replace(node.lineno, start, len(node.name), new)

    def _replace(self, line: int, column: int, length: int, text: str) -> None:
        self.edits.append(Edit(line, column, line, column + length, text))

    def visit_Name(self, node: ast.Name) -> None:
        """A name that stands for something in a table."""
        origin = self._resolve(node.id)
        if origin is None:
            return
        new = self._names.get(origin)
        if new is not None and origin.rpartition(".")[2] == node.id:
            self._replace(node.lineno, node.col_offset, len(node.id), new)
        moved = self._modules.get(origin)
        if moved is not None and origin.rpartition(".")[2] == node.id:
            last = moved.rpartition(".")[2]
            if last != node.id:
                self._replace(node.lineno, node.col_offset, len(node.id), last)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """``module.Name``."""
        self.visit(node.value)
        base = self._dotted(node.value)
        if base is None or base not in self._project.sources:
            return
        new = self._names.get(self._project.origin(f"{base}.{node.attr}"))
        if new is not None and node.end_lineno is not None and node.end_col_offset is not None:
            start = node.end_col_offset - len(node.attr)
            self._replace(node.end_lineno, start, len(node.attr), new)

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._resolve(node.id)
        if isinstance(node, ast.Attribute):
            base = self._dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Annotations may be strings."""
        self._annotation(node.annotation)
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """So may the first argument of ``cast``."""
        if isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar") and node.args:
            self._annotation(node.args[0])
        self.generic_visit(node)

    def _annotation(self, node: ast.expr | None) -> None:
        for inner in [] if node is None else ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                self._string_annotation(inner)
        if node is not None:
            self.visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """So may an index: ``list["Name"]``."""
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            self._string_annotation(node.slice)
        self.generic_visit(node)

    def _string_annotation(self, node: ast.Constant) -> None:
        raw = self._lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
        if node.lineno != node.end_lineno or raw[1:-1] != node.value:
            return
        for word in WORD.finditer(node.value):
            origin = self._resolve(word.group())
            new = None if origin is None else self._names.get(origin)
            if new is not None:
                self._replace(node.lineno, node.col_offset + 1 + word.start(), len(word[0]), new)

    def visit_Assign(self, node: ast.Assign) -> None:
        """``__all__`` lists names as strings."""
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Constant):
                    self._string_annotation(inner)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """Dotted names are replaced as text."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Writes the statement anew, as several where its names part."""
        groups: dict[str, list[str]] = {}
        changed = False
        for alias in node.names:
            dotted = f"{node.module}.{alias.name}"
            base, name = str(node.module), alias.name
            if self._project.origin(dotted) == dotted in self._modules:
                base, _, name = marked(self._modules[dotted]).rpartition(".")
            else:
                base = marked(self._modules[base]) if base in self._modules else base
                name = self._names.get(self._project.origin(dotted), name)
            kept = f" as {alias.asname}" if alias.asname else ""
            if alias.asname == alias.name != name:
                kept = f" as {name}"  # a re-export
            changed = changed or (base.replace(MARK, ""), name) != (node.module, alias.name)
            groups.setdefault(base, []).append(f"{name}{kept}")
        if not changed or node.level:
            return
        indent = " " * node.col_offset
        new = f"\n{indent}".join(
            f"from {base} import {', '.join(names)}"
            if len(groups) == 1 and len(names) == 1
            else f"from {base} import ({', '.join(names)})"
            for base, names in groups.items()
        )
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        if node.end_lineno > node.lineno:  # a comment inside would be lost
            new += "".join(re.findall(r"  # noqa[^\n]*", self._lines[node.lineno - 1]))
        self.edits.append(
            Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, new)
        )


def marked(module: str) -> str:
    """Returns a new module's name so that it is not taken for an old one: see ``MARK``."""
    package, dot, rest = module.partition(".")
    return f"{package}{MARK}{dot}{rest}"


def apply(text: str, edits: list[Edit]) -> str:
    """Returns the text with the edits, which do not overlap."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for e in sorted(set(edits), key=lambda e: (e.line, e.column), reverse=True):
        first, last = lines[e.line - 1], lines[e.end_line - 1]
        lines[e.line - 1 : e.end_line] = [
            first[: e.column] + e.text.encode() + last[e.end_column :]
        ]
    return b"".join(lines).decode()


def in_prose(text: str, names: Mapping[str, str]) -> str:
    """Returns the text with unambiguous names replaced where they stand in backticks."""

    def one(match: re.Match[str]) -> str:
        inner = match["text"]
        words = re.split(r"([A-Za-z_][A-Za-z0-9_]*)", inner)
        if re.fullmatch(r"[\w.~:()]+", inner):
            words = [names.get(word, word) for word in words]
        return match["ticks"] + "".join(words) + match["ticks"]

    return PROSE.sub(one, text)


def paths_and_modules(modules: Mapping[str, str]) -> tuple[re.Pattern[str], dict[str, str]]:
    """Returns what finds old module names and paths in any text, and what replaces each."""
    found: dict[str, str] = {}
    for old, new in modules.items():
        found[old] = new
        old_path, new_path = path_of(old), path_of(new)
        for prefix in ("", "a/", "b/"):  # as in the patches of tests
            found[f"{prefix}{old_path}.py"] = f"{prefix}{new_path}.py"
        if old_path.parts[0] in ROOTS:
            found["/".join(old_path.parts[1:]) + ".py"] = "/".join(new_path.parts[1:]) + ".py"
    longest = sorted(found, key=len, reverse=True)
    if not longest:
        return re.compile(r"(?!)"), found
    pattern = "|".join(map(re.escape, longest))
    return re.compile(rf"(?<![\w./])(?:{pattern})(?![\w])"), found


def plain_names(project: Project, names: Mapping[str, str]) -> dict[str, str]:
    """Returns the classes and constants of the table that one word means everywhere."""
    origins: dict[str, set[str]] = {}
    for source in project.sources.values():
        for name, dotted in source.bound.items():
            origins.setdefault(name, set()).add(project.origin(dotted))
    found = {old.rpartition(".")[2]: (old, new) for old, new in names.items()}
    return {
        word: new
        for word, (old, new) in found.items()
        if origins[word] == {old} and word[0].isupper()
    }


def rewrite(
    project: Project,
    paths: list[Path],
    names: Mapping[str, str],
    attributes: Mapping[str, str],
    modules: Mapping[str, str],
) -> None:
    """Writes every file that names something in the tables."""
    plain = plain_names(project, names)
    pattern, replaced = paths_and_modules(modules)
    for path in paths:
        if path in LEFT_ALONE or path.suffix in (".lock", ".png", ".svg", ".zst", ".gz"):
            continue
        text = path.read_text(encoding="utf-8")
        new = text
        if path.suffix == ".py":
            source = project.sources[module_of(path)]
            renamer = Renamer(project, source, names, modules)
            renamer.visit(source.tree)
            others = AttributeRenamer(source, attributes)
            others.visit(source.tree)
            new = apply(text, [*renamer.edits, *others.edits])
        if path.suffix in (".py", ".md"):
            new = in_prose(new, plain)
        new = pattern.sub(lambda m: replaced[m.group()], new).replace(MARK, "")
        if new != text:
            path.write_text(new, encoding="utf-8")


def move(modules: Mapping[str, str]) -> None:
    """Moves the files of the modules."""
    for old, new in modules.items():
        before, after = path_of(old).with_suffix(".py"), path_of(new).with_suffix(".py")
        if not before.exists():
            before, after = path_of(old) / "__init__.py", path_of(new) / "__init__.py"
        after.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", str(before), str(after)], check=True)


def main() -> None:
    """Renames everything that the table names."""
    table = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    names, modules = table.get("names", {}), table.get("modules", {})
    paths = tracked()
    project = Project([p for p in paths if p.suffix == ".py"])
    for old in names:
        module, _, name = old.rpartition(".")
        if module not in project.sources or name not in project.sources[module].bound:
            sys.exit(f"{old}: there is no such name")
    rewrite(project, paths, names, attribute_table(project, table.get("attributes", {})), modules)
    move(modules)


if __name__ == "__main__":
    main()
