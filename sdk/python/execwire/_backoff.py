"""Backoff, and the classification of failures as transient or final."""

from __future__ import annotations

import random

from . import errors

#: The documented default of a server's default_grace, in seconds.
ASSUMED_GRACE = 30.0
#: How much later than this client a server may detect a lost connection: its keepalive, and
#: a little more.
GRACE_MARGIN = 45.0
#: How long a lost connection is resumed where no process depends on it.
RESUME_TIMEOUT = ASSUMED_GRACE + GRACE_MARGIN
#: How long an unanswered start is repeated. The server recognizes a repetition by the
#: record of the process, which it keeps for 30 seconds after a short one has closed; later
#: the command could run twice.
START_RETRY_TIMEOUT = 25.0

_FIRST, _MOST = 0.1, 2.0
_MAX_UNEXPECTED = 5
_UNEXPECTED_CODES = frozenset(("CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED", "DEADLINE_EXCEEDED"))


class Backoff:
    """The waits between attempts. It is for one thread."""

    def __init__(self) -> None:
        self._last = 0.0

    def reset(self) -> None:
        """Makes the next wait short again."""
        self._last = 0.0

    def next(self, at_least: float = 0.0) -> float:
        """Returns the next wait, in seconds."""
        self._last = min(max(2 * self._last, _FIRST), _MOST)
        return max(self._last * random.uniform(0.5, 1.0), min(at_least, _MOST))


class RetryLimit:
    """Limits retries after failures that may be final or not."""

    def __init__(self) -> None:
        self.unexpected = 0

    def transient(self, error: errors.ExecwireError) -> bool:
        """Whether the next attempt may succeed. A connection evicted in favour of another
        principal is a lost one."""
        if error.code == "UNAVAILABLE" or error.reason == "TOO_MANY_CONNECTIONS":
            return True
        if error.from_server or error.code not in _UNEXPECTED_CODES:
            return False
        self.unexpected += 1
        return self.unexpected <= _MAX_UNEXPECTED
