#!/usr/bin/python3
"""Makes a directory of another machine a copy of a local one, and shows the progress.

    upload.py tcp://127.0.0.1:7420 ~/src/project /srv/project --ignore node_modules

Files that are up to date are skipped, so that an upload that was ended can be run again. A
lost connection does not end it: it continues where the server has received everything.
"""

from __future__ import annotations

import argparse
import sys

import execwire


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="the URL of the server, or local:")
    parser.add_argument("directory", help="the local directory")
    parser.add_argument("path", help="the path on the server")
    parser.add_argument("--ignore", action="append", default=[], help="a pattern as in .gitignore")
    parser.add_argument("--delete", action="store_true", help="remove what the local directory lacks")
    arguments = parser.parse_args()
    # A terminal shows one line, which changes.
    end = "\033[K\r" if sys.stderr.isatty() else "\n"

    def show(done: int, total: int, path: str) -> None:
        print(f"{done} of {total} bytes: {path}", end=end, file=sys.stderr, flush=True)

    with execwire.connect(arguments.server) as server:
        try:
            done = server.files.push(
                arguments.directory,
                arguments.path,
                update=True,
                delete=arguments.delete,
                ignore=arguments.ignore,
                on_progress=show,
            )
        except (execwire.Error, OSError) as error:
            print(f"failed to upload {arguments.directory}: {error}", file=sys.stderr)
            return 1
    print(f"{done.files} files copied, {done.bytes} bytes; {done.skipped} up to date, {done.deleted} deleted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
