"""Runs the tests: python3 -m tests [MODULE...].

Without a module all of them run, each in an interpreter of its own and a few beside
each other, since they mostly wait.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import subprocess
import sys
import time
import unittest
from typing import Any, List, Tuple

#: From how many seconds on a test is said to be slow.
SLOW = 1.0
WAITING = 3
#: Against hanging, in seconds.
LONGEST = 600


class Result(unittest.TextTestResult):
    durations: List[Tuple[float, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        self._started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        self.durations.append((time.monotonic() - self._started, test.id()))
        super().stopTest(test)


def run(names: List[str]) -> bool:
    loader: Any = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames([f"tests.{name}" for name in names])
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    for seconds, name in sorted(Result.durations, reverse=True):
        if seconds > SLOW:
            print(f"{seconds:6.1f} s  {name}", file=sys.stderr)
    # What is skipped is not tested.
    return result.wasSuccessful() and not result.skipped and result.testsRun > 0


def run_module(name: str) -> Tuple[str, int, str]:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST,
    )
    return name, ran.returncode, ran.stdout


def run_all() -> bool:
    # The longest first.
    first = ["test_resume", "test_package", "test_remote_build"]
    names = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    names.sort(key=lambda name: (name not in first, name))
    good = True
    with concurrent.futures.ThreadPoolExecutor(WAITING) as pool:
        for name, code, output in pool.map(run_module, names):
            good = good and code == 0
            print(f"--- {name}: {'ok' if code == 0 else 'FAILED'}\n{output}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(0 if (run(sys.argv[1:]) if sys.argv[1:] else run_all()) else 1)
