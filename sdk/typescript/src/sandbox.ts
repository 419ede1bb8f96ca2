import { create } from "@bufbuild/protobuf";
import {
  NetworkAccess,
  SandboxAccess,
  type SandboxPolicy,
  SandboxPolicySchema,
  SpecialPathKind,
} from "./gen/execwire/v1/sandbox_pb.js";

/** Common access rights of a process or file call. */
export interface SandboxOptions {
  /**
   * Absolute directories on the server that may be written to. Entries named .git, .agents or .codex in them
   * stay read-only.
   */
  readonly writable?: readonly string[];
  /** Allows writes to /tmp and to TMPDIR of the process's environment. */
  readonly temporary?: boolean;
  /** Allows network access. */
  readonly network?: boolean;
}

/**
 * Builds a policy: everything is readable, as far as the server's user may; the options allow more. Finer
 * policies are built with SandboxPolicySchema.
 */
export function sandbox(options: SandboxOptions = {}): SandboxPolicy {
  const writable = options.writable ?? [];
  const kinds = [
    ...(writable.length > 0 ? [SpecialPathKind.PROJECT_ROOTS] : []),
    ...(options.temporary ? [SpecialPathKind.SLASH_TMP, SpecialPathKind.TMPDIR] : []),
  ];
  const special = (kind: SpecialPathKind, access: SandboxAccess) => ({
    place: { case: "special" as const, value: { kind } },
    access,
  });
  return create(SandboxPolicySchema, {
    policy: {
      case: "managed",
      value: {
        fileSystem: {
          policy: {
            case: "restricted",
            value: {
              entries: [
                special(SpecialPathKind.ROOT, SandboxAccess.READ),
                ...kinds.map((kind) => special(kind, SandboxAccess.WRITE)),
              ],
            },
          },
        },
        network: options.network ? NetworkAccess.ENABLED : NetworkAccess.RESTRICTED,
        workspaceRoots: [...writable],
      },
    },
  });
}
