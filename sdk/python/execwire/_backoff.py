"""Paces attempts, and tells failures that may pass from those that will not."""

from __future__ import annotations

import random

from . import errors

#: The documented default of a server's default_grace, in seconds.
ASSUMED_GRACE = 30.0
#: How much later than this client a server may notice that a connection is gone: its
#: keepalive, and a little more.
GRACE_MARGIN = 45.0
#: For how long a lost connection is resumed where no process depends on it.
LOST_FOR = ASSUMED_GRACE + GRACE_MARGIN
#: For how long a start that was not answered is repeated. The server knows a
#: repetition by its record of the process, which it keeps for 30 seconds after a
#: short one has closed; later the command could run twice.
REPEAT_WITHIN = 25.0

_FIRST, _MOST = 0.1, 2.0
_ODD_FAILURES = 5
_ODD_CODES = frozenset(("CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED", "DEADLINE_EXCEEDED"))


class Backoff:
    """Says how long to wait before each attempt. It is for one thread."""

    def __init__(self) -> None:
        self._last = 0.0

    def reset(self) -> None:
        """Makes the next wait a short one again."""
        self._last = 0.0

    def next(self, at_least: float = 0.0) -> float:
        """Returns the next wait, in seconds."""
        self._last = min(max(2 * self._last, _FIRST), _MOST)
        return max(self._last * random.uniform(0.5, 1.0), min(at_least, _MOST))


class Patience:
    """Counts the failures that only patience tells from final ones."""

    def __init__(self) -> None:
        self.odd = 0

    def transient(self, error: errors.ExecwireError) -> bool:
        """Whether the failure may be gone with the next attempt. A connection that gave
        its place to another principal is a lost one."""
        if error.code == "UNAVAILABLE" or error.reason == "TOO_MANY_CONNECTIONS":
            return True
        if error.from_server or error.code not in _ODD_CODES:
            return False
        self.odd += 1
        return self.odd <= _ODD_FAILURES
