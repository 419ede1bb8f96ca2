"""Patterns of paths, as of the shell and of .gitignore."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

from .errors import UsageError

_MAGIC = re.compile(r"[*?\[\\]")


def has_magic(component: str) -> bool:
    """Whether a component of a path is a pattern."""
    return _MAGIC.search(component) is not None


def regex(pattern: str, hidden: bool = True) -> str:
    """Translates a pattern: "*" and "?" match no slash, "**" any directories, "[a-z]" a
    character. With ``hidden``, names that begin with a dot are like others."""
    dot = "" if hidden else r"(?!\.)"
    parts: List[str] = []
    at, begin = 0, True
    while at < len(pattern):
        if begin and pattern.startswith("**/", at):
            parts.append(rf"(?:{dot}[^/]+/)*")
            at += 3
            continue
        if begin and pattern[at:] == "**":
            parts.append(rf"{dot}[^/]+(?:/{dot}[^/]+)*")
            break
        c = pattern[at]
        at += 1
        if c == "*":
            parts.append((dot if begin else "") + "[^/]*")
        elif c == "?":
            parts.append((dot if begin else "") + "[^/]")
        elif c == "[":
            inside, at = _class(pattern, at)
            parts.append((dot if begin else "") + inside)
        elif c == "\\" and at < len(pattern):
            parts.append(re.escape(pattern[at]))
            at += 1
        else:
            parts.append(re.escape(c))
        begin = c == "/"
    return "".join(parts)


def _class(pattern: str, at: int) -> Tuple[str, int]:
    """Translates a class from after its bracket on, and returns where it ends. A closing
    bracket at its beginning, or after a backslash, is one of its characters."""
    inverted = pattern[at : at + 1] in ("!", "^")
    at += inverted
    begin, ranges = at, ""
    while True:
        if pattern[at : at + 1] == "]" and at > begin:
            # A class without characters matches none.
            return f"(?!/)[{'^' * inverted}{ranges}]" if ranges else "[^/]" if inverted else "(?!)", at + 1
        low, at = _character(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("]", ""):
            high, at = _character(pattern, at + 1)
        if low <= high:
            ranges += f"{re.escape(low)}-{re.escape(high)}"


def _character(pattern: str, at: int) -> Tuple[str, int]:
    at += pattern[at : at + 1] == "\\"
    if at >= len(pattern):
        raise UsageError(f"the pattern {pattern!r} has an unclosed [")
    return pattern[at], at + 1


class Ignore:
    """Patterns in the notation of .gitignore, without negation. One with a slash before its
    end matches relative paths, any other names; one with a slash at its end only
    directories."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: List[Tuple[bool, "re.Pattern[str]"]] = []
        for pattern in patterns:
            bare = pattern.rstrip("/")
            anywhere = "(?:.*/)?" if "/" not in bare else ""
            compiled = re.compile(anywhere + regex(bare.lstrip("/")), re.DOTALL)
            self._patterns.append((pattern.endswith("/"), compiled))

    def matches(self, path: str, directory: bool) -> bool:
        """Whether an entry is ignored."""
        return any(
            pattern.fullmatch(path) and (directory or not only_directories)
            for only_directories, pattern in self._patterns
        )
