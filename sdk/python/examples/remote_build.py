#!/usr/bin/python3
"""Builds a Go project on another machine.

    remote_build.py relay+wss://hub.example.org/executor/build-1?role=harness \\
        --token-file ann.token ~/src/project ./cmd/tool ./tool

The sources are uploaded as a tar archive, the output of the compiler is printed as it is
written, and the program is downloaded. The connection may be lost any number of times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import tempfile
from typing import IO, Optional

import execwire

#: The compiler finds its caches by the environment of the server.
ENV = {"CGO_ENABLED": "0"}
IGNORED = {".git", ".cache", "bin", "node_modules"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("server", help="the URL of the server, or local:")
    parser.add_argument("source", help="the directory with go.mod")
    parser.add_argument("package", help="what to build, such as ./cmd/tool")
    parser.add_argument("result", help="where to put the program")
    parser.add_argument("--token-file", help="the file with the token")
    arguments = parser.parse_args()
    with execwire.connect(arguments.server, token_file=arguments.token_file) as server:
        directory = os.path.join(server.describe().temporary_directory, f"build-{os.getpid()}")
        server.files.mkdir(directory, mode=0o700)
        try:
            return build(server, directory, arguments.source, arguments.package, arguments.result)
        finally:
            server.files.remove(directory, recursive=True)


def build(server: execwire.Client, directory: str, source: str, package: str, result: str) -> int:
    with tempfile.TemporaryFile() as archive:
        pack(source, archive)
        server.run(["tar", "-xf", "-"], cwd=directory, input=archive, check=True)
    command = ["go", "build", "-v", "-trimpath", "-buildvcs=false", "-o", "result.out", package]
    built = server.run(
        command,
        cwd=directory,
        inherit_env="all",
        env=ENV,
        stdout=sys.stdout.buffer,
        stderr=sys.stderr.buffer,
    )
    if not built.exit.ok:
        print(built.exit, file=sys.stderr)
        return built.exit.shell_code
    # The packages of the program: some megabytes of text.
    with open(result + ".json", "wb") as listed:
        command = ["go", "list", "-deps", "-json=ImportPath,GoFiles,Imports,Deps", package]
        server.run(command, cwd=directory, inherit_env="all", env=ENV, stdout=listed, check=True)
    downloaded = server.files.download_file(f"{directory}/result.out", result)
    print(f"built {result}, {downloaded.size} bytes")
    return 0


def pack(source: str, archive: IO[bytes]) -> None:
    """Writes an archive of a directory, and rewinds it."""

    def wanted(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        return None if os.path.basename(member.name) in IGNORED else member

    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source, arcname=".", filter=wanted)
    archive.seek(0)


if __name__ == "__main__":
    sys.exit(main())
