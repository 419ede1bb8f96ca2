"""Access rights of a process or file call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Union

from .v1 import sandbox_pb2


@dataclass(frozen=True)
class Sandbox:
    """A common policy: everything is readable, as far as the server's user may.

    By default there are no writes and no network. For finer policies, every method also
    accepts a ``SandboxPolicy`` of ``execwire.v1.sandbox_pb2``. A policy that the server
    cannot enforce is rejected.
    """

    #: Absolute directories that may be written to. Entries named .git, .agents or .codex in
    #: them stay read-only.
    writable: Sequence[str] = ()
    #: Allows writes to /tmp and TMPDIR.
    temporary: bool = False
    #: Allows network access.
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


#: A policy, as accepted by methods.
SandboxLike = Union[Sandbox, sandbox_pb2.SandboxPolicy]


def policy_of(sandbox: SandboxLike) -> sandbox_pb2.SandboxPolicy:
    """Returns the policy for requests."""
    return sandbox.policy() if isinstance(sandbox, Sandbox) else sandbox


def _special(
    kind: sandbox_pb2.SpecialPathKind, access: sandbox_pb2.SandboxAccess
) -> sandbox_pb2.SandboxEntry:
    return sandbox_pb2.SandboxEntry(special=sandbox_pb2.SpecialPath(kind=kind), access=access)
