"""The types of the package and of its examples, and its version."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import unittest

import execwire

from .support import LONG, ROOT, SDK, TestCase


class Version(TestCase):
    def test_it_is_that_of_the_package_for_npm(self) -> None:
        text = (ROOT / "sdk/typescript/package.json").read_text()
        self.assertEqual(re.findall(r'"version": "(.*)"', text), [execwire.__version__])


class Types(TestCase):
    cache = tempfile.TemporaryDirectory(prefix="execwire-test-mypy-")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.cache.cleanup()

    def test_package_is_strictly_typed(self) -> None:
        checked = self._check("--config-file", str(SDK / "pyproject.toml"))
        self.assertEqual(checked.returncode, 0, checked.stdout)
        self.assertIn("Success", checked.stdout)

    def test_examples_are_strictly_typed(self) -> None:
        examples = [str(example) for example in (SDK / "examples").glob("*.py")]
        self.assertGreater(len(examples), 1)
        checked = self._check("--strict", *examples)
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_type_errors_are_reported(self) -> None:
        with open(self.path("wrong.py"), "w") as file:
            file.write(
                "import execwire\n"
                "with execwire.connect('local:') as client:\n"
                "    client.run(['true']).exit.status\n"
                "    client.describe().no_such_member\n"
                "    client.files.read(7)\n"
                "    client.run(['true'], text=False, chekc=True)\n"
            )
        checked = self._check("--strict", self.path("wrong.py"))
        self.assertEqual(
            re.findall(r":(\d+): error:", checked.stdout), ["3", "4", "5", "6"], checked.stdout
        )

    def _check(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        # In the directory of the package, where mypy finds its types.
        return subprocess.run(
            ["/usr/bin/mypy", "--cache-dir", self.cache.name, "--no-color-output", *arguments],
            cwd=SDK,
            env={**os.environ, "MYPYPATH": "stubs:."},
            capture_output=True,
            text=True,
            timeout=LONG,
        )


if __name__ == "__main__":
    unittest.main()
