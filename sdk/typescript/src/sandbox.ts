import { create } from "@bufbuild/protobuf";
import {
  NetworkAccess,
  SandboxAccess,
  type SandboxPolicy,
  SandboxPolicySchema,
  SpecialPathKind,
} from "./gen/execwire/v1/sandbox_pb.js";

/** What a process, or a call about files, may touch, as most want it. */
export interface SandboxOptions {
  /**
   * The absolute directories of the server that may be written to. What is named .git, .agents
   * or .codex in them stays read-only.
   */
  readonly writable?: readonly string[];
  /** Lets /tmp be written to, and what TMPDIR names in the process's environment. */
  readonly temporary?: boolean;
  /** Lets the network be reached. */
  readonly network?: boolean;
}

/**
 * Makes a policy: everything may be read, as far as the server's user may; nothing else is
 * allowed but what the options say. Finer policies are made of SandboxPolicySchema.
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
