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
import zipfile
from typing import Dict

from .support import LONG, PROGRAM, ROOT, SDK, TestCase, unused_port

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
    """Packages in a virtual environment, which has the libraries of Debian and no index."""

    environment = tempfile.TemporaryDirectory(prefix="execwire-test-venv-")
    venv = os.path.join(environment.name, "venv")

    @classmethod
    def setUpClass(cls) -> None:
        made = [sys.executable, "-m", "venv", "--system-site-packages", cls.venv]
        subprocess.run(made, check=True, timeout=LONG)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.environment.cleanup()

    def test_readme_installs_the_checkout(self) -> None:
        text = (SDK / "README.md").read_text()
        (create, install) = re.findall(r"`(python3 -m venv --\S+ venv)` and `(venv/bin/pip install [^`]+)`", text)[0]
        self.assertEqual(create.split()[1:], ["-m", "venv", "--system-site-packages", "venv"])
        # A copy, since building leaves files beside the sources.
        for name in ("sdk/python", "gen/python"):
            shutil.copytree(ROOT / name, self.path(name), symlinks=True, ignore=shutil.ignore_patterns("tests", "build", "*.egg-info"))
        shutil.copy(ROOT / "LICENSE", self.path("LICENSE"))
        os.symlink(self.venv, self.path("venv"))
        self._run(*install.split(), "--force-reinstall", "--no-deps")
        self._use()

    def test_packages_are_complete_and_reproducible(self) -> None:
        built = [self._build("a"), self._build("b")]
        self.assertEqual(built[0], built[1])
        version = re.findall(r'"version": "(.*)"', (ROOT / "sdk/typescript/package.json").read_text())[0]
        self.assertEqual(sorted(built[0]), [f"execwire-{version}-py3-none-any.whl", f"execwire-{version}.tar.gz"])

        names = zipfile.ZipFile(self.path(f"a/execwire-{version}-py3-none-any.whl")).namelist()
        packages = ("execwire", "execwire/aio", "execwire/v1")
        source = {f"{package}/{path.name}" for package in packages for path in (SDK / package).iterdir() if path.is_file()}
        self.assertTrue({"execwire/py.typed", "execwire/v1/process_run_pb2.pyi"} <= source)
        metadata = {f"execwire-{version}.dist-info/{name}" for name in ("LICENSE", "METADATA", "RECORD", "WHEEL", "top_level.txt")}
        self.assertEqual(set(names), source | metadata)

        pip = os.path.join(self.venv, "bin/pip")
        self._run(pip, "uninstall", "--yes", "execwire")
        self._run(pip, "install", "--no-index", self.path(f"a/execwire-{version}-py3-none-any.whl"))
        about = self._use(
            "import importlib.metadata as m; about = m.metadata('execwire')\n"
            "print(execwire.__version__ == m.version('execwire'), about['License'], len(about.get_payload()) > 1000, '](..' in about.get_payload())"
        )
        self.assertEqual(about, "True Apache-2.0 True False\n")

    def _build(self, name: str) -> Dict[str, bytes]:
        self._run(str(ROOT / "scripts/package-sdks"), self.path(name), "python")
        return {path.name: path.read_bytes() for path in pathlib.Path(self.path(name)).iterdir()}

    def _use(self, script: str = "") -> str:
        """Runs a command by the installed package, then the script, whose output is returned."""
        ran = self._run(
            os.path.join(self.venv, "bin/python"), "-c",
            "import execwire, execwire.aio, execwire.v1.process_service_pb2_grpc; print(execwire.__file__)\n"
            "with execwire.launch() as s: print(s.run(['echo', 'installed']).text)\n" + script,
        )  # fmt: skip
        self.assertTrue(ran.startswith(self.venv), ran)
        _, _, rest = ran.partition("installed\n\n")
        self.assertNotEqual(rest, ran)
        return rest

    def _run(self, *argv: str) -> str:
        ran = subprocess.run(argv, cwd=self.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
        self.assertEqual(ran.returncode, 0, f"{argv}: {ran.stdout}{ran.stderr}")
        return ran.stdout


class Readme(TestCase):
    def test_every_program_runs(self) -> None:
        text = (SDK / "README.md").read_text().replace("/tmp/", self.directory + "/")
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), 4)
        output = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        printed = self._run(programs[0])
        self.assertTrue(printed.startswith(output[0]), printed)
        self.assertIn("exited with code 0", printed)
        self.assertTrue(printed.endswith("PROGRAM_NOT_FOUND\n"), printed)
        port = str(unused_port())
        self.assertEqual(self._run(programs[1].replace("8000", port)), f"[{port}]\n200\n")
        self.assertEqual(self._run(programs[2]), "['0\\n', '1\\n', '2\\n']\n")
        self.assertEqual(self._run("import execwire\n" + programs[3]), "0\n")

    def test_program_of_project_readme_runs(self) -> None:
        (program,) = re.findall(r"```python\n(.*?)```", (SDK / "../../README.md").read_text(), re.DOTALL)
        there = program.replace("tcp://127.0.0.1:7420", "local:").replace("/tmp", self.directory)
        self.assertNotEqual(there, program)
        self.assertEqual(self._run(there), "hello\nexit code 3\n")

    def _run(self, program: str) -> str:
        ran = self.run_python(program)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout


if __name__ == "__main__":
    unittest.main()
