import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { UsageError } from "./errors.js";
import {
  EnvironmentInherit,
  ResourceLimitSchema,
  StartProcessRequestSchema,
  type StartProcessRequest,
  StdinMode,
} from "./gen/execwire/v1/process_command_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { durationOf } from "./time.js";

/** The size of a terminal in characters. */
export interface TerminalSize {
  readonly rows: number;
  readonly columns: number;
}

/** How a command is run, beside its arguments. All of it is optional. */
export interface CommandOptions {
  /** The directory to start in, absolute, on the server's machine. Absent is "/". */
  readonly cwd?: string;
  /** Variables to set, beside those of `inherit` or in their place. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Which variables the process has from the server: none, the core of them (PATH, HOME, LANG
   * and the like), or all that do not look like secrets. Absent is "core".
   */
  readonly inherit?: "none" | "core" | "all";
  /** Gives the process a terminal in place of pipes; true is 24 rows of 80 columns. */
  readonly terminal?: boolean | TerminalSize;
  /** How long it may run, in milliseconds; then it is killed, with cause "timeout". */
  readonly timeoutMs?: number;
  /** How long it may be silent, in milliseconds; then it is killed, with cause "no_output". */
  readonly noOutputTimeoutMs?: number;
  /** Limits of the operating system. */
  readonly resourceLimits?: readonly MessageInitShape<typeof ResourceLimitSchema>[];
  /** What is added to the server's nice value, 1 to 39. */
  readonly nice?: number;
  /** Confines the process; absent confines nothing, or as Client.withSandbox does. */
  readonly sandbox?: SandboxPolicy;
  /** The process's id in its session: by it the same start, repeated, finds the same process. Absent chooses one. */
  readonly id?: string;
  /** The session to start in; absent is the default session. */
  readonly sessionId?: string;
  /** What to find the process by, for the caller alone. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Leaves descendants that outlive the process alone once it has closed. */
  readonly leaveDescendants?: boolean;
}

const inherits = {
  none: EnvironmentInherit.NONE,
  core: EnvironmentInherit.CORE,
  all: EnvironmentInherit.ALL,
} as const;

/**
 * Makes the message that starts a command. No shell is involved: for one, run ["sh", "-c", …].
 * pipeStdin gives it an input that is not closed.
 */
export function startRequest(
  argv: readonly string[],
  options: CommandOptions,
  pipeStdin: boolean,
  sandbox: SandboxPolicy | undefined,
): StartProcessRequest {
  if (typeof argv === "string") {
    throw new UsageError('the command is a string: give its program and arguments as an array, or ["sh", "-c", command]');
  }
  if (argv.length === 0) {
    throw new UsageError("the command is empty: give at least its program");
  }
  const { terminal } = options;
  const confined = options.sandbox ?? sandbox;
  const size = typeof terminal === "object" ? { size: { rows: terminal.rows, columns: terminal.columns } } : {};
  return create(StartProcessRequestSchema, {
    sessionId: options.sessionId ?? "",
    processId: options.id ?? crypto.randomUUID(),
    command: {
      command: {
        case: "direct",
        value: {
          argv: [...argv],
          workingDirectory: options.cwd ?? "/",
          env: { ...options.env },
          environmentPolicy: { inherit: inherits[options.inherit ?? "core"] },
          ...(confined && { sandbox: confined }),
        },
      },
    },
    io: {
      io: terminal
        ? { case: "terminal", value: size }
        : { case: "pipes", value: { stdin: pipeStdin ? StdinMode.PIPE : StdinMode.CLOSED } },
    },
    limits: {
      ...(options.timeoutMs !== undefined && { timeout: durationOf("timeoutMs", options.timeoutMs) }),
      ...(options.noOutputTimeoutMs !== undefined && {
        noOutputTimeout: durationOf("noOutputTimeoutMs", options.noOutputTimeoutMs),
      }),
      resourceLimits: [...(options.resourceLimits ?? [])],
      ...(options.nice !== undefined && { nice: options.nice }),
    },
    labels: { ...options.labels },
    leaveDescendants: options.leaveDescendants ?? false,
  });
}
