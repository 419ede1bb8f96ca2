#!/usr/bin/python3
"""Runs a server program on another machine, and makes its port one of this machine.

    forward.py tcp://127.0.0.1:7420 8000 python3 -m http.server 8000 --bind 127.0.0.1

The output of the program is printed. Ctrl-C ends it, with all connections.
"""

from __future__ import annotations

import argparse
import sys

import execwire


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("server", help="the URL of the server, or local:")
    parser.add_argument("port", type=int, help="the port on which the program listens")
    parser.add_argument("program", help="the program")
    parser.add_argument("argument", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with execwire.connect(arguments.server) as server:
        with server.start([arguments.program, *arguments.argument], stdin=False) as process:
            process.wait_for(port=arguments.port, timeout=60)
            with server.forward(arguments.port) as forward:
                print(f"http://127.0.0.1:{forward.port}/", flush=True)
                for line in process.output():
                    sys.stdout.buffer.write(line)
            return process.wait().shell_code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
