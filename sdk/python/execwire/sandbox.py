"""What a process, or a call about files, may touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Union

from .v1 import sandbox_pb2


@dataclass(frozen=True)
class Sandbox:
    """A policy as most want it: everything may be read, as far as the server's user may.

    Without arguments nothing can be written and no network be reached. Finer policies
    are written as a ``SandboxPolicy`` of ``execwire.v1.sandbox_pb2``, which every
    method takes in its place. What nothing on the server can enforce is refused.
    """

    #: The absolute directories that may be written to. What is named .git, .agents or
    #: .codex in them stays read-only.
    writable: Sequence[str] = ()
    #: Whether /tmp may be written to, and what TMPDIR names.
    temporary: bool = False
    #: Whether the network may be reached.
    network: bool = False

    def policy(self) -> sandbox_pb2.SandboxPolicy:
        """Returns the policy for requests."""
        entries = [_special(sandbox_pb2.SPECIAL_PATH_KIND_ROOT, sandbox_pb2.SANDBOX_ACCESS_READ)]
        write = sandbox_pb2.SANDBOX_ACCESS_WRITE
        if self.writable:
            entries.append(_special(sandbox_pb2.SPECIAL_PATH_KIND_PROJECT_ROOTS, write))
        if self.temporary:
            entries.append(_special(sandbox_pb2.SPECIAL_PATH_KIND_SLASH_TMP, write))
            entries.append(_special(sandbox_pb2.SPECIAL_PATH_KIND_TMPDIR, write))
        network = sandbox_pb2.NETWORK_ACCESS_RESTRICTED
        if self.network:
            network = sandbox_pb2.NETWORK_ACCESS_ENABLED
        return sandbox_pb2.SandboxPolicy(
            managed=sandbox_pb2.ManagedSandbox(
                file_system=sandbox_pb2.FileSystemPolicy(
                    restricted=sandbox_pb2.RestrictedFileSystem(entries=entries)
                ),
                network=network,
                workspace_roots=list(self.writable),
            )
        )


#: What methods take to confine something.
SandboxLike = Union[Sandbox, sandbox_pb2.SandboxPolicy]


def policy_of(sandbox: SandboxLike) -> sandbox_pb2.SandboxPolicy:
    """Returns the policy for requests."""
    return sandbox.policy() if isinstance(sandbox, Sandbox) else sandbox


def _special(
    kind: sandbox_pb2.SpecialPathKind, access: sandbox_pb2.SandboxAccess
) -> sandbox_pb2.SandboxEntry:
    return sandbox_pb2.SandboxEntry(special=sandbox_pb2.SpecialPath(kind=kind), access=access)
