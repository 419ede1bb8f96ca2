"""The built packages and their installation. Not one of `make test-python` but of
`make test-packages`, because it builds them."""

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

from .support import LONG, PROGRAM, ROOT, SDK, TestCase

ENVIRONMENT = {**os.environ, "EXECWIRE_BIN": str(PROGRAM)}


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
            "with execwire.launch() as s: print(s.run(['echo', 'installed']).stdout)\n" + script,
        )  # fmt: skip
        self.assertTrue(ran.startswith(self.venv), ran)
        _, _, rest = ran.partition("installed\n\n")
        self.assertNotEqual(rest, ran)
        return rest

    def _run(self, *argv: str) -> str:
        ran = subprocess.run(argv, cwd=self.directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=LONG)
        self.assertEqual(ran.returncode, 0, f"{argv}: {ran.stdout}{ran.stderr}")
        return ran.stdout


if __name__ == "__main__":
    unittest.main()
