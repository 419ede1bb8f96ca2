#!/usr/bin/python3
"""Runs a program of another machine at this terminal, as ssh -t does.

    terminal.py tcp://127.0.0.1:7420 vim notes.txt

Keys, Ctrl-C among them, are for the program, and so are changes of the window's size. While
the connection is lost the program continues; what was typed and printed meanwhile follows.
"""

from __future__ import annotations

import argparse
import sys

import execwire


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="the URL of the server, or local:")
    parser.add_argument("program", help="the program")
    parser.add_argument("argument", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with execwire.connect(arguments.server) as server:
        try:
            exit = server.interactive(
                [arguments.program, *arguments.argument],
                on_lost=lambda _: notice("connection lost"),
                on_resumed=lambda: notice("connection restored"),
            )
        except execwire.Error as error:
            print(f"{arguments.program}: {error}", file=sys.stderr)
            return 255
    if exit.code is None:
        print(f"{arguments.program}: {exit}", file=sys.stderr)
    return exit.shell_code


def notice(text: str) -> None:
    # The terminal is in raw mode, in which a newline is no carriage return.
    sys.stderr.write(f"\r\n[{text}]\r\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
