"""The package: its types, its installation, and its README."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from .support import LONG, PROGRAM, SDK, TestCase

ENVIRONMENT = {**os.environ, "EXECWIRE_BIN": str(PROGRAM)}


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
        for example in (SDK / "examples").glob("*.py"):
            checked = self._check("--strict", str(example))
            self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_type_errors_are_reported(self) -> None:
        with open(self.path("wrong.py"), "w") as file:
            file.write(
                "import execwire\n"
                "with execwire.connect('local:') as client:\n"
                "    client.run(['true']).exit.status\n"
                "    client.describe().no_such_member\n"
                "    client.files.read(7)\n"
            )
        checked = self._check("--strict", self.path("wrong.py"))
        self.assertEqual(
            re.findall(r":(\d+): error:", checked.stdout), ["3", "4", "5"], checked.stdout
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


class Installed(TestCase):
    def test_pip_install_works_outside_the_tree(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--system-site-packages", self.path("venv")],
            check=True, timeout=LONG,
        )  # fmt: skip
        # A copy, since building leaves files beside the sources.
        source = self.path("source")
        shutil.copytree(SDK, source, symlinks=False)
        python = self.path("venv/bin/python")
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--no-build-isolation", "--no-index", source],
            capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip
        self.assertEqual(installed.returncode, 0, installed.stdout + installed.stderr)
        ran = subprocess.run(
            [python, "-c", "import execwire; print(execwire.__file__)\n"
             "with execwire.launch() as s: print(s.run(['echo', 'installed']).text)"],
            cwd=self.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG,
        )  # fmt: skip
        self.assertIn("installed", ran.stdout, ran.stderr)
        self.assertTrue(ran.stdout.startswith(self.path("venv")), ran.stdout)
        package = os.path.dirname(ran.stdout.split("\n")[0])
        (distribution,) = pathlib.Path(package).parent.glob("execwire-*.dist-info")
        self.assertTrue(list(distribution.rglob("LICENSE")), "the licence goes with every copy")
        for name in ("py.typed", "v1/process_run_pb2.py", "v1/process_run_pb2.pyi"):
            self.assertTrue(os.path.isfile(os.path.join(package, name)), name)


class Readme(TestCase):
    def test_every_program_runs(self) -> None:
        text = (SDK / "README.md").read_text().replace("/tmp/", self.directory + "/")
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), 3)
        output = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        printed = self._run(programs[0])
        self.assertTrue(printed.startswith(output[0]), printed)
        self.assertIn("exited with code 0", printed)
        self.assertTrue(printed.endswith("PROGRAM_NOT_FOUND\n"), printed)
        self.assertEqual(self._run(programs[1]), "['0\\n', '1\\n', '2\\n']\n")
        self.assertEqual(self._run("import execwire\n" + programs[2]), "0\n")

    def test_program_of_project_readme_runs(self) -> None:
        (program,) = re.findall(r"```python\n(.*?)```", (SDK / "../../README.md").read_text(), re.DOTALL)
        there = program.replace("grpc://127.0.0.1:7420", "local:").replace("/tmp", self.directory)
        self.assertNotEqual(there, program)
        self.assertEqual(self._run(there), "hello\nexit code 3\n")

    def _run(self, program: str) -> str:
        ran = self.run_python(program)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout


if __name__ == "__main__":
    unittest.main()
