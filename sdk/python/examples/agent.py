#!/usr/bin/python3
"""Runs the commands of an agent on another machine.

    agent.py tcp://127.0.0.1:7420 /srv/project

Each line of stdin is a step: {"command": "make test", "timeout": 60}. Its output is shown on
stderr as it arrives. Its result is a line of stdout, for the model:
{"exit_code": 2, "timed_out": false, "stdout": "...", "stderr": "..."}, or {"error": "..."} if
the command was not started. The connection may be lost meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Dict

import execwire

#: How long a step may take that does not say it, in seconds.
TIMEOUT = 120.0
#: How much output the model gets, in characters: the end, where errors are.
MOST = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="the URL of the server, or local:")
    parser.add_argument("directory", help="where the commands run")
    arguments = parser.parse_args()
    with execwire.connect(arguments.server) as server:
        for line in sys.stdin:
            step = json.loads(line)
            result = run(server, arguments.directory, step["command"], step.get("timeout", TIMEOUT))
            print(json.dumps(result), flush=True)


def run(server: execwire.Client, directory: str, command: str, timeout: float) -> Dict[str, Any]:
    """Runs a step. The server ends it, with all its descendants, after the timeout."""
    timed_out = False
    try:
        done = server.run(command, cwd=directory, timeout=timeout, on_stdout=show, on_stderr=show)
    except execwire.ProcessTimeoutError as error:
        done, timed_out = error.completed, True
    except execwire.ExecwireError as error:
        return {"error": str(error)}
    return {
        "exit_code": done.exit.shell_code,
        "timed_out": timed_out,
        "stdout": done.stdout[-MOST:],
        "stderr": done.stderr[-MOST:],
    }


def show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    main()
