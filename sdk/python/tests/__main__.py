"""Runs the tests, and says which were slow: python3 -m tests [MODULE...]."""

from __future__ import annotations

import sys
import time
import unittest
from typing import Any, List, Tuple

SLOW = 0.2


class Result(unittest.TextTestResult):
    durations: List[Tuple[float, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        self._started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        self.durations.append((time.monotonic() - self._started, test.id()))
        super().stopTest(test)


def main() -> int:
    names = [f"tests.{name}" for name in sys.argv[1:]]
    loader: Any = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(names) if names else loader.discover("tests", top_level_dir=".")
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    for seconds, name in sorted(Result.durations, reverse=True):
        if seconds > SLOW:
            print(f"{seconds:6.1f} s  {name}", file=sys.stderr)
    # What is skipped is not tested.
    return 0 if result.wasSuccessful() and not result.skipped and result.testsRun else 1


sys.exit(main())
