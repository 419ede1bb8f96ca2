"""The example programs, with connections that are cut."""

from __future__ import annotations

import os
import sys
import unittest
from unittest import mock

from . import programs
from .support import SDK, serve


class Programs(unittest.TestCase):
    def test_cuts_lose_nothing(self) -> None:
        with serve() as server, mock.patch.dict(os.environ, PYTHONPATH=str(SDK)):
            programs.check(
                server.url, [sys.executable, "-X", "faulthandler", str(SDK / "examples" / "{}.py")]
            )


if __name__ == "__main__":
    unittest.main()
