"""The programs of the READMEs."""

from __future__ import annotations

import json
import re
import unittest

from .support import SDK, TestCase, unused_port


class Readme(TestCase):
    def test_every_program_runs(self) -> None:
        text = (SDK / "README.md").read_text().replace("/tmp/", self.directory + "/")
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), 6)
        output = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        printed = self._run(programs[0])
        self.assertTrue(printed.startswith(output[0]), printed)
        self.assertIn("exited with code 0", printed)
        self.assertTrue(printed.endswith("PROGRAM_NOT_FOUND\n"), printed)
        port = str(unused_port())
        self.assertEqual(self._run(programs[1].replace("8000", port)), f"[{port}]\n200\n")
        self.assertEqual(self._run(programs[2]), "")
        with open(self.path("build.cast")) as file:
            header, *events = map(json.loads, file)
        self.assertEqual((header["version"], events[0][1:]), (2, ["o", "\033[32mgreen\033[m"]))
        self.assertEqual(events[-1][1:], ["m", "exit status 3"])
        self.assertEqual(self._run(programs[3]), f"['{self.directory}/execwire-tree/apt']\n")
        self.assertEqual(self._run(programs[4]), "['0\\n', '1\\n', '2\\n']\n")
        self.assertEqual(self._run("import execwire\n" + programs[5]), "0\n")

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
