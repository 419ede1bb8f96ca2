"""Runs the tests: python3 -m tests [MODULE...].

By default all modules but those of BUILD run, each in an interpreter of its own and a few
concurrently, since they mostly wait.
"""

from __future__ import annotations

import concurrent.futures
import faulthandler
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, List, Tuple

#: They build and install the package: `make test-packages` runs them.
BUILD = ["test_package"]
#: A test that takes this many seconds is reported as slow.
SLOW = 1.0
WAITING = 3
#: Limits a test, and all of a module, in seconds, against hanging.
LONGEST_TEST = 240.0
LONGEST = 600


class Result(unittest.TextTestResult):
    durations: List[Tuple[float, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        self._started = time.monotonic()
        super().startTest(test)
        self._watchdog = threading.Timer(LONGEST_TEST, _end_hung, (test.id(),))
        self._watchdog.daemon = True
        self._watchdog.start()
        # Works even if no Python thread runs any more.
        faulthandler.dump_traceback_later(LONGEST_TEST + 10, exit=True)

    def stopTest(self, test: unittest.TestCase) -> None:
        self._watchdog.cancel()
        faulthandler.cancel_dump_traceback_later()
        self.durations.append((time.monotonic() - self._started, test.id()))
        super().stopTest(test)


def _end_hung(test: str) -> None:
    """Prints the stack of each thread, and ends the tests."""
    print(f"\n{test} hangs for {LONGEST_TEST:g} s", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


def run(names: List[str]) -> bool:
    loader: Any = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames([f"tests.{name}" for name in names])
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    for seconds, name in sorted(Result.durations, reverse=True):
        if seconds > SLOW:
            print(f"{seconds:6.1f} s  {name}", file=sys.stderr)
    # Skipped tests count as failed.
    return result.wasSuccessful() and not result.skipped and result.testsRun > 0


def run_module(name: str) -> Tuple[str, int, str]:
    # Not a pipe, which children of a hanging module may keep open.
    with tempfile.TemporaryFile("w+") as output:
        module = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests", name],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            module.wait(LONGEST)
        except subprocess.TimeoutExpired:
            module.send_signal(signal.SIGABRT)  # prints the stacks of its threads
            module.wait()
        output.seek(0)
        return name, module.returncode, output.read()


def run_all() -> bool:
    # The longest first.
    first = ["test_resume", "test_remote_build"]
    modules = {path.stem for path in pathlib.Path(__file__).parent.glob("test_*.py")}
    names = sorted(modules.difference(BUILD))
    names.sort(key=lambda name: (name not in first, name))
    good = True
    with concurrent.futures.ThreadPoolExecutor(WAITING) as pool:
        for name, code, output in pool.map(run_module, names):
            good = good and code == 0
            print(f"--- {name}: {'ok' if code == 0 else 'FAILED'}\n{output}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(0 if (run(sys.argv[1:]) if sys.argv[1:] else run_all()) else 1)
