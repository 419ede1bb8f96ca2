"""The names of the three SDKs, which are those of sdk/names.toml."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
import re
import subprocess
import tomllib
import unittest
from typing import Set

import execwire

from .support import ROOT

#: Words that Go writes in capitals.
INITIALISMS = {"id": "ID", "url": "URL", "pid": "PID", "ok": "OK"}


class Names(unittest.TestCase):
    def test_all_sdks_use_the_names_of_the_table(self) -> None:
        table = tomllib.loads((ROOT / "sdk" / "names.toml").read_text())
        go, typescript = go_names(), typescript_names()
        # Something was read at all.
        self.assertLess({"Client.Run", "TransferOptions.OnProgress", "Exit.StderrBytes"}, go)
        self.assertLess({"Client.processes", "connect", "Exit.code", "UsageError"}, typescript)
        wrong = []
        for section, rows in table.items():
            for name, (python, in_go, in_typescript) in rows.items():
                for place, known, spelled in (
                    (python, None, {name}),
                    (in_go, go, {pascal(name)}),
                    (in_typescript, typescript, {camel(name), camel(name) + "Ms"}),
                ):
                    gap, other = place.startswith("!"), place.startswith("~")
                    place = place.lstrip("!~")
                    there = is_in_python(place) if known is None else place in known
                    last = re.sub(r".*[.(]", "", place).rstrip(")")
                    if place and not (there or gap and known is not None):
                        wrong.append(f"{section}.{name}: there is no {place}")
                    elif place and not other and last not in spelled:
                        wrong.append(f"{section}.{name}: {place} has another name")
        self.assertEqual(wrong, [])


def pascal(name: str) -> str:
    if not name.islower():
        return name
    return "".join(INITIALISMS.get(word, word.capitalize()) for word in name.split("_"))


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def is_in_python(place: str) -> bool:
    path, _, parameter = place.rstrip(")").partition("(")
    found: object = execwire
    for part in path.split("."):
        if dataclasses.is_dataclass(found) and part in {f.name for f in dataclasses.fields(found)}:
            return not parameter
        if not hasattr(found, part):
            # An attribute of instances.
            return inspect.isclass(found) and bool(
                re.search(rf"self\.{part}(?:, self\.\w+|: [^=]+)? = ", inspect.getsource(found))
            )
        found = getattr(found, part)
    return not parameter or parameter in inspect.signature(found).parameters  # type: ignore[arg-type]


def go_names() -> Set[str]:
    names: Set[str] = set()
    for package in ("./client", "./client/internal/transfer"):
        printed = subprocess.run(
            ["go", "doc", "-all", package], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        of = ""
        for line in printed.splitlines():
            if method := re.match(r"func \(\w+ \*?(\w+)\) (\w+)\(", line):
                names.add(f"{method[1]}.{method[2]}")
            elif top := re.match(r"(?:func|type|var|const) (\w+)", line):
                of = {"Options": "TransferOptions"}.get(top[1], top[1])
                names.add(of)
            elif fields := re.match(r"\t([A-Z]\w*(?:, [A-Z]\w*)*) ", line):
                names |= {f"{of}.{field}" for field in fields[1].split(", ")}
    return names


def typescript_names() -> Set[str]:
    names: Set[str] = set()
    for path in pathlib.Path(ROOT / "sdk" / "typescript" / "src").glob("*.ts"):
        of = ""
        for line in path.read_text().splitlines():
            if top := re.match(r"export (?:async )?(?:class|interface|function|type|const) (\w+)", line):
                of = top[1]
                names.add(of)
            elif line.startswith("}"):
                of = ""
            elif of and (
                member := re.match(r"  (?:(?:readonly|async|get) |\*)*(\w+)(?:\?|<.*?>)?[:(]", line)
            ):
                names.add(f"{of}.{member[1]}")
    return names


if __name__ == "__main__":
    unittest.main()
