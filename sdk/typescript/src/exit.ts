import { Signal } from "./gen/execwire/v1/process_event_pb.js";

/** Why a process ended. */
export type ExitCause =
  /** By itself, or by a signal that the server did not send to end it. */
  | "exited"
  /** By a request, or because its owner did not return in time. */
  | "terminated"
  /** It ran longer than its timeout. */
  | "timeout"
  /** It exceeded another limit, such as processor time. */
  | "limit"
  /** The server shut down. */
  | "server_shutdown"
  /** It no longer exists, and the operating system reported no status. */
  | "lost"
  /** It wrote nothing for longer than its noOutputTimeout. */
  | "no_output"
  /** It ran when the server was restarted; its status and output are not known. */
  | "server_restarted"
  /** A cause that this package does not know, from a newer server. */
  | "unknown";

/** How a process ended and what was received from it. */
export interface Exit {
  /** The id of the process in its session. */
  readonly processId: string;
  /** The exit code; undefined if a signal killed it, or it is unknown. */
  readonly code: number | undefined;
  /** The number of the signal that killed the process, or undefined. */
  readonly signal: number | undefined;
  /** Why it ended. */
  readonly cause: ExitCause;
  /** Whether it exited by itself with code 0. */
  readonly ok: boolean;
  /** The exit status of a shell: the code, 128+n for signal n, or 255. */
  readonly shellCode: number;
  /** How long it ran by the server's clock, in milliseconds. */
  readonly wallTimeMs: number;
  /** The processor time of the process and its waited-for children in user mode, in milliseconds. */
  readonly userTimeMs: number;
  /** The same in kernel mode. */
  readonly systemTimeMs: number;
  /** The maximum resident set in bytes; 0 if it was smaller than that of the server. */
  readonly maxResidentBytes: number;
  /** How much it wrote to stdout, including dropped bytes. */
  readonly stdoutBytes: number;
  /** The same of stderr. */
  readonly stderrBytes: number;
  /** The same of its terminal. */
  readonly terminalBytes: number;
  /**
   * Exactly how many of those were not received because they were evicted. 0 for a process owned from start
   * to end.
   */
  readonly droppedBytes: number;
  /** Whether it was confined and apparently failed because its sandbox denied access. */
  readonly sandboxDenied: boolean;
  /** How often the process was resumed after a lost connection. */
  readonly resumed: number;
}

/** Describes how a process ended. */
export function describeExit(exit: Exit): string {
  const why = exit.cause === "exited" ? "" : ` (${exit.cause})`;
  if (exit.signal !== undefined) {
    return `killed by SIG${Signal[exit.signal] ?? exit.signal}${why}`;
  }
  return exit.code === undefined ? `ended, and how is not known${why}` : `exited with code ${exit.code}${why}`;
}

/** Output as text, with U+FFFD for invalid UTF-8, or as bytes. */
export type Output<Text extends boolean> = Text extends false ? Uint8Array : string;

/** The result of `run`: the output of a process, and how it ended. */
export interface Completed<Text extends boolean = true> {
  /** How it ended. */
  readonly exit: Exit;
  /** Its stdout, or its terminal output. */
  readonly stdout: Output<Text>;
  /** Its stderr; empty for a terminal. */
  readonly stderr: Output<Text>;
}
