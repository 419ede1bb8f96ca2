"""Writes the reference of the SDK for Python as Markdown, a file for each module, made from
its docstrings, its "#:" comments and its annotations. It needs nothing but the package and
its libraries.

usage: reference.py ROOT DIRECTORY

Fails for a public name that has no documentation.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
import typing

MODULES = {"execwire": "execwire.md", "execwire.aio": "aio.md"}
WIDTH = 88

Body = typing.List[ast.stmt]


class Source:
    """The syntax of a module, with its comments."""

    def __init__(self, path: pathlib.Path) -> None:
        self.text = path.read_text()
        self.lines = self.text.splitlines()
        self.tree = ast.parse(self.text)
        self.classes = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef)}

    def comment(self, node: ast.stmt) -> str:
        """The "#:" comment above a statement."""
        at = node.lineno - 2
        lines: typing.List[str] = []
        while at >= 0 and self.lines[at].strip().startswith("#:"):
            lines.insert(0, self.lines[at].strip()[2:].strip())
            at -= 1
        return " ".join(lines)


class Reference:
    def __init__(self, root: pathlib.Path) -> None:
        self.package = root / "sdk/python/execwire"
        self.sources: typing.Dict[str, Source] = {}
        for path in sorted([*self.package.glob("*.py"), *self.package.glob("aio/*.py")]):
            name = ".".join(path.relative_to(root / "sdk/python").with_suffix("").parts)
            self.sources[re.sub(r"\.__init__$", "", name)] = Source(path)
        self.aliases = self.find_aliases()
        self.undocumented: typing.List[str] = []

    def find_aliases(self) -> typing.Dict[str, typing.Tuple[str, str]]:
        """Names of annotations that no module exports, with what they stand for."""
        found: typing.Dict[str, typing.Tuple[str, str]] = {}
        for source in self.sources.values():
            for node in ast.walk(source.tree):
                if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Subscript, ast.Attribute)):
                    target = node.targets[0]
                    if node.col_offset == 0 and isinstance(target, ast.Name) and target.id[0].isupper():
                        found[target.id] = (unquoted(ast.unparse(node)), source.comment(node))
                elif isinstance(node, ast.ClassDef) and [ast.unparse(b) for b in node.bases] == ["Protocol"]:
                    text = ast.get_docstring(node) or ""
                    node.body = [n for n in node.body if not isinstance(n, ast.Expr)]
                    found[node.name] = (ast.unparse(node).replace(":\n\n", ":\n"), text)
        return found

    def write(self, name: str) -> str:
        """Returns the page of a module."""
        module = importlib.import_module(name)
        members = {n: getattr(module, n) for n in sorted(module.__all__) if not n.startswith("__")}
        classes = {n: c for n, c in members.items() if inspect.isclass(c)}
        errors = {n: c for n, c in classes.items() if issubclass(c, BaseException)}
        others = {n: c for n, c in classes.items() if n not in errors}
        functions = {n: f for n, f in members.items() if inspect.isfunction(f)}
        values = {n: v for n, v in members.items() if n not in classes and n not in functions}
        self.public, self.used = set(members), set[str]()
        out = [f"# Module {name}", prose(self.documented(name, module.__doc__)), "## Index", self.index(members)]
        sections = (
            ("Functions", functions, self.function_page),
            ("Classes", others, self.class_page),
            ("Errors", errors, self.class_page),
        )
        for title, things, page in sections:
            if things:
                out.append(f"## {title}")
                for thing in things:
                    out += page(thing, things[thing])
        self.used |= set(values)
        return "\n\n".join(part for part in [*out, *self.alias_page()] if part) + "\n"

    def index(self, members: typing.Dict[str, object]) -> str:
        lines: typing.List[str] = []
        for name, member in members.items():
            text = inspect.cleandoc(getattr(member, "__doc__", None) or "")
            if name in self.aliases:
                text = self.aliases[name][1]
            lines.append(f"- [{name}](#{anchor(name)}): {prose(first_sentence(text))}")
        return "\n".join(lines)

    def function_page(self, name: str, function: typing.Any) -> typing.List[str]:
        return [f"### {name}", self.signature(function, name), prose(self.documented(name, function.__doc__))]

    def class_page(self, name: str, kind: type) -> typing.List[str]:
        bases = [b.__name__ for b in kind.__bases__ if b is not object and b is not typing.Generic and not b.__name__.startswith("_")]
        bases = [f"[{b}](#{anchor(b)})" if b in self.public else f"`{b}`" for b in bases]
        out = [f"### {name}", "Is " + " and ".join(bases) + "." if bases else "", prose(self.documented(name, kind.__doc__))]
        if dataclasses.is_dataclass(kind):
            out.append(self.signature(kind.__init__, name, returns=False))
        out.append(self.attributes(name, kind))
        for owner in reversed(self.owners(kind)):
            for member, value in vars(owner).items():
                internal = member.startswith("_") or (value.__doc__ or "").startswith("For ")  # for this package
                if not internal and inspect.isroutine(value):
                    function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                    full = f"{name}.{member}"
                    static = "@classmethod\n" if isinstance(value, classmethod) else "@staticmethod\n" if isinstance(value, staticmethod) else ""
                    out += [f"#### {full}", self.signature(function, member, before=static), prose(self.documented(full, function.__doc__))]
        return out

    def owners(self, kind: type) -> typing.List[type]:
        """The class, and its bases that are not public: what they have is its own."""
        return [c for c in kind.__mro__ if c is kind or c.__name__.startswith("_") and c.__module__.startswith("execwire")]

    def attributes(self, name: str, kind: type) -> str:
        rows: typing.List[typing.Tuple[str, str, str]] = []
        for owner in reversed(self.owners(kind)):
            source = self.sources[owner.__module__]
            body: Body = list(source.classes[owner.__name__].body)
            for statement in list(body):
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    body += [n for n in ast.walk(statement) if isinstance(n, (ast.Assign, ast.AnnAssign))]
            for node in body:
                known = {row[0] for row in rows if row[2]}
                rows += [row for row in self.attribute(owner, source, node) if row[0] not in known]
        if not rows:
            return ""
        if issubclass(kind, enum.Enum):
            return "\n".join(f"- `{a}`: {prose(d)}" if d else f"- `{a}`" for a, _, d in rows)
        for attribute, _, text in rows:
            self.documented(f"{name}.{attribute}", text)
        lines = ["| attribute | type | |", "|---|---|---|"]
        for attribute, kind_of, text in rows:
            shown = kind_of.replace("|", "\\|")
            lines.append(f"| `{attribute}` | {f'`{shown}`' if shown else ''} | {prose(text)} |")
        return "\n".join(lines)

    def attribute(self, owner: type, source: Source, node: ast.stmt) -> typing.List[typing.Tuple[str, str, str]]:
        if isinstance(node, ast.FunctionDef) and [ast.unparse(d) for d in node.decorator_list] == ["property"]:
            if node.name.startswith("_"):
                return []
            text = ast.get_docstring(node) or ""
            return [(node.name, self.annotation(ast.unparse(node.returns) if node.returns else ""), text.replace("\n", " "))]
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            return []
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        found: typing.List[typing.Tuple[str, str, str]] = []
        for target in targets:
            for leaf in target.elts if isinstance(target, ast.Tuple) else [target]:
                in_body = node in source.classes[owner.__name__].body
                if in_body and isinstance(leaf, ast.Name):
                    attribute = leaf.id
                elif isinstance(leaf, ast.Attribute) and ast.unparse(leaf.value) == "self":
                    attribute = leaf.attr
                else:
                    continue
                if attribute.startswith("_") or in_body and callable(getattr(owner, attribute, None)) and not issubclass(owner, enum.Enum):
                    continue
                kind = ""
                if isinstance(node, ast.AnnAssign):
                    kind = self.annotation(ast.unparse(node.annotation))
                elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and not in_body:
                    kind = node.value.func.id  # what is constructed
                found.append((attribute, kind, source.comment(node)))
        return found

    def signature(self, function: typing.Any, name: str, returns: bool = True, before: str = "") -> str:
        overloads = typing.get_overloads(inspect.unwrap(function)) or [function]
        asynchronous = "async " if inspect.iscoroutinefunction(function) else ""
        texts: typing.List[str] = []
        for one in overloads:
            signature = inspect.signature(one)
            parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
            parts: typing.List[str] = []
            keyword = False
            for p in parameters:
                if p.kind is p.KEYWORD_ONLY and not keyword:
                    parts.append("*")
                    keyword = True
                stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
                keyword = keyword or p.kind is p.VAR_POSITIONAL
                text = stars + p.name
                if p.annotation is not p.empty:
                    text += f": {self.annotation(p.annotation)}"
                if p.default is not p.empty:
                    text += " = " + (f'"{p.default}"' if isinstance(p.default, str) else repr(p.default))
                parts.append(text)
            result = ""
            if returns and signature.return_annotation is not signature.empty:
                result = f" -> {self.annotation(signature.return_annotation)}"
            text = f"{asynchronous}{'def ' if returns else ''}{name}({', '.join(parts)}){result}"
            if len(text) > WIDTH:
                text = text[: text.index("(") + 1] + "".join(f"\n    {part}," for part in parts) + f"\n){result}"
            texts.append(before + text)
        return "```python\n" + "\n\n".join(texts) + "\n```"

    def annotation(self, text: typing.Any) -> str:
        text = unquoted(text if isinstance(text, str) else inspect.formatannotation(text))
        self.used.update(re.findall(r"\b[A-Z]\w*", text))
        return text

    def alias_page(self) -> typing.List[str]:
        """What the names in signatures stand for."""
        out: typing.List[str] = []
        done: typing.Set[str] = set()
        while True:
            left = sorted(n for n in self.used - done if n in self.aliases)
            if not left:
                break
            for name in left:
                done.add(name)
                self.annotation(self.aliases[name][0])
        for name in sorted(done):
            text, comment = self.aliases[name]
            out += [f"### {name}", f"```python\n{text}\n```", prose(self.documented(name, comment))]
        return ["## Types in signatures", *out] if out else []

    def documented(self, name: str, text: typing.Optional[str]) -> str:
        if not text:
            self.undocumented.append(name)
        return inspect.cleandoc(text or "")


def unquoted(annotation: str) -> str:
    """An annotation without the quotes that an older Python needs, but with those of literals."""
    pieces = re.split(r"(Literal\[[^]]*\])", annotation)
    return "".join(p if p.startswith("Literal[") else re.sub(r"[\"']", "", p) for p in pieces)


def anchor(heading: str) -> str:
    return heading.lower().replace(".", "")


def first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s|\n\n", text)[0]


def prose(text: str) -> str:
    """A docstring as Markdown: paragraphs, and indented code."""
    out: typing.List[str] = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            out.append("```python\n" + textwrap.dedent(block) + "\n```")
            continue
        block = re.sub(r"\n(?!- )\s*", " ", block)
        pieces = re.split(r"(``.*?``|`[^`]*`)", block)
        out.append("".join(p.replace("``", "`") if p.startswith("`") else re.sub(r"([*<|])", r"\\\1", p) for p in pieces))
    return re.sub(r"\n```\n\n```python\n", "\n\n", "\n\n".join(out))


def main() -> int:
    root, to = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    sys.path.insert(0, str(root / "sdk/python"))
    sys.dont_write_bytecode = True
    reference = Reference(root)
    for name, file in MODULES.items():
        (to / file).write_text(reference.write(name))
    for name in sorted(set(reference.undocumented)):
        print(f"{name} is public and has no documentation", file=sys.stderr)
    return 1 if reference.undocumented else 0


if __name__ == "__main__":
    sys.exit(main())
