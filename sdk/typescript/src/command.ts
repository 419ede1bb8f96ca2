import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { randomId } from "./bytes.js";
import { UsageError } from "./errors.js";
import {
  EnvironmentInherit,
  LimitedResource,
  type ResourceLimitSchema,
  StartProcessRequestSchema,
  type StartProcessRequest,
  StdinMode,
} from "./gen/execwire/v1/process_command_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { durationOf } from "./time.js";

/** A program with its arguments, or a line for the shell of the server, `sh -c`. */
export type CommandLine = string | readonly string[];

/** The size of a terminal in characters. */
export interface TerminalSize {
  /** The height, in lines. */
  readonly rows: number;
  /** The width, in characters. */
  readonly columns: number;
}

/** Options of a command. All are optional. */
export interface CommandOptions {
  /**
   * The working directory on the server's machine. Absent is the home directory of its user, or of `user`, where a
   * relative one begins.
   */
  readonly cwd?: string;
  /**
   * Whom to run as, by name or number on the server's machine, with `:GROUP` for another group than the user's own.
   * Absent is the server's user. It needs a server that runs as root.
   */
  readonly user?: string;
  /** Variables to set, in addition to those of `inheritEnv`, and overriding them. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Which variables the process inherits from the server: none, core (PATH, HOME, LANG and the like), or all
   * that do not look like secrets. Absent is "core".
   */
  readonly inheritEnv?: "none" | "core" | "all";
  /** Gives the process a terminal instead of pipes; true is 24 rows of 80 columns. */
  readonly terminal?: boolean | TerminalSize;
  /** How long it may run, in milliseconds; then it is killed, with cause "timeout". */
  readonly timeoutMs?: number;
  /** How long it may write nothing, in milliseconds; then it is killed, with cause "no_output". */
  readonly noOutputTimeoutMs?: number;
  /** Limits of setrlimit(2). */
  readonly resourceLimits?: Readonly<Partial<Record<LimitedResourceName, ResourceLimit>>>;
  /** Added to the nice value of the server, 1 to 39. */
  readonly nice?: number;
  /** Confines the process; absent applies the policy of Client.withSandbox, if any. */
  readonly sandbox?: SandboxPolicy;
  /**
   * The id of the process in its session: repeating the same start with it finds the same process. Absent
   * generates one.
   */
  readonly id?: string;
  /** The session to start in; absent is the default session. */
  readonly sessionId?: string;
  /** Used by the caller to find the process. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Does not kill descendants that outlive the process. */
  readonly leaveDescendants?: boolean;
}

/** A limit of setrlimit(2), or a soft and a hard one, in the unit of its name; Infinity is no limit. */
export type ResourceLimit = number | readonly [soft: number, hard: number];

/** A resource of setrlimit(2). */
export type LimitedResourceName =
  | "cpuSeconds"
  | "fileBytes"
  | "dataBytes"
  | "stackBytes"
  | "coreBytes"
  | "userProcesses"
  | "openFiles"
  | "lockedBytes"
  | "addressSpaceBytes";

const resources: Readonly<Record<LimitedResourceName, LimitedResource>> = {
  cpuSeconds: LimitedResource.CPU_SECONDS,
  fileBytes: LimitedResource.FILE_BYTES,
  dataBytes: LimitedResource.DATA_BYTES,
  stackBytes: LimitedResource.STACK_BYTES,
  coreBytes: LimitedResource.CORE_BYTES,
  userProcesses: LimitedResource.USER_PROCESSES,
  openFiles: LimitedResource.OPEN_FILES,
  lockedBytes: LimitedResource.LOCKED_BYTES,
  addressSpaceBytes: LimitedResource.ADDRESS_SPACE_BYTES,
};

/** Options of {@link Client.start}. */
export interface StartOptions extends CommandOptions {
  /** Whether the process has stdin: "pipe" by default. A terminal always has. */
  readonly stdin?: "pipe" | "closed";
  /**
   * How long the server keeps the process after a lost connection, in milliseconds; 0 ends it at once. Absent
   * is the default of the server, 30 s.
   */
  readonly graceMs?: number;
  /** Kills the process. */
  readonly signal?: AbortSignal;
  /** Called when the connection is lost, with its error; the client reconnects. */
  readonly onLost?: (error: unknown) => void;
  /** Called when the process was resumed after a lost connection. */
  readonly onResumed?: () => void;
}

const inherits = {
  none: EnvironmentInherit.NONE,
  core: EnvironmentInherit.CORE,
  all: EnvironmentInherit.ALL,
} as const;

/** Builds the request to start a command. pipeStdin gives it an open stdin. */
export function startRequest(
  command: CommandLine,
  options: CommandOptions,
  pipeStdin: boolean,
  sandbox: SandboxPolicy | undefined,
): StartProcessRequest {
  if (command.length === 0) {
    throw new UsageError("the command is empty: give at least its program");
  }
  const { terminal } = options;
  const confined = options.sandbox ?? sandbox;
  const size = typeof terminal === "object" ? { size: { rows: terminal.rows, columns: terminal.columns } } : {};
  return create(StartProcessRequestSchema, {
    sessionId: options.sessionId ?? "",
    processId: options.id ?? randomId(),
    command: {
      command: {
        case: "direct",
        value: {
          argv: typeof command === "string" ? ["sh", "-c", command] : [...command],
          workingDirectory: options.cwd ?? "",
          env: { ...options.env },
          environmentPolicy: { inherit: inherits[options.inheritEnv ?? "core"] },
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
      resourceLimits: Object.entries(options.resourceLimits ?? {}).map(resourceLimit),
      ...(options.nice !== undefined && { nice: options.nice }),
    },
    labels: { ...options.labels },
    leaveDescendants: options.leaveDescendants ?? false,
    user: options.user ?? "",
  });
}

function resourceLimit([name, limit]: [string, ResourceLimit]): MessageInitShape<typeof ResourceLimitSchema> {
  const resource = resources[name as LimitedResourceName];
  if (resource === undefined) {
    throw new UsageError(`resourceLimits has ${JSON.stringify(name)}, which is none of ${Object.keys(resources).join(", ")}`);
  }
  const [soft, hard] = (typeof limit === "number" ? [limit, limit] : limit).map((value) => {
    if (value !== Infinity && !(Number.isSafeInteger(value) && value >= 0)) {
      throw new UsageError(`resourceLimits has ${value} for ${name}: give an integer, 0 or more, or Infinity`);
    }
    return value === Infinity ? unlimited : BigInt(value);
  }) as [bigint, bigint];
  return { resource, soft, hard };
}

const unlimited = 2n ** 64n - 1n;
