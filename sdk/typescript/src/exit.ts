import { ExitCause as ProtoExitCause, type ExitRecord, Signal } from "./gen/execwire/v1/process_event_pb.js";
import { ClientError } from "./errors.js";
import { durationMs } from "./time.js";

/** Why a process ended. */
export type ExitCause =
  /** By itself, or by a signal that the server did not send to end it. */
  | "exited"
  /** Somebody asked the server to, or its owner did not return in time. */
  | "terminated"
  /** It ran longer than its timeout. */
  | "timeout"
  /** It exceeded another limit, such as processor time. */
  | "limit"
  /** The server shut down. */
  | "server_shutdown"
  /** It is gone and the operating system did not say how. */
  | "lost"
  /** It wrote nothing for longer than its noOutputTimeout. */
  | "no_output"
  /** The server is newer than this package, and knows another cause. */
  | "unknown";

const causes: Readonly<Record<number, ExitCause>> = {
  [ProtoExitCause.EXITED]: "exited",
  [ProtoExitCause.TERMINATED]: "terminated",
  [ProtoExitCause.TIMEOUT]: "timeout",
  [ProtoExitCause.LIMIT]: "limit",
  [ProtoExitCause.SERVER_SHUTDOWN]: "server_shutdown",
  [ProtoExitCause.LOST]: "lost",
  [ProtoExitCause.NO_OUTPUT]: "no_output",
};

/** How a process ended and what was received of it. */
export interface Exit {
  readonly processId: string;
  /** What the process passed to exit; undefined if a signal killed it, or the operating system did not say. */
  readonly code: number | undefined;
  /** The number of the signal that killed the process, or undefined. */
  readonly signal: number | undefined;
  readonly cause: ExitCause;
  /** Whether it exited by itself with code 0. */
  readonly ok: boolean;
  /** What a shell would show: the code, 128+n for signal n, or 255. */
  readonly shellCode: number;
  /** How long it ran by the server's clock, in milliseconds. */
  readonly wallTimeMs: number;
  /** The processor time that it and those it waited for used, in milliseconds. */
  readonly userTimeMs: number;
  readonly systemTimeMs: number;
  /** The largest resident set in bytes; 0 if it was smaller than the server's own. */
  readonly maxResidentBytes: number;
  /** How much it wrote, what was dropped included. */
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  readonly terminalBytes: number;
  /** Exactly how much of that was not received, because it was not kept. 0 for a process owned from start to end. */
  readonly droppedBytes: number;
  /** Whether it was confined and seems to have failed for want of what its sandbox denies it. */
  readonly sandboxDenied: boolean;
  /** How often the connection was lost and the process taken up again. */
  readonly resumed: number;
}

/** What is counted while a process is followed. */
export interface Received {
  stdoutBytes: number;
  stderrBytes: number;
  terminalBytes: number;
  droppedBytes: number;
  resumed: number;
}

/** Makes an exit of what a server told and what was received. */
export function makeExit(processId: string, record: ExitRecord, received: Received): Exit {
  const code = record.status.case === "exitCode" ? record.status.value : undefined;
  const signal = record.status.case === "signal" ? Number(record.status.value) : undefined;
  const cause = causes[record.cause] ?? "unknown";
  return {
    processId,
    code,
    signal,
    cause,
    ok: code === 0 && cause === "exited",
    shellCode: signal !== undefined ? 128 + signal : (code ?? 255),
    wallTimeMs: durationMs(record.wallTime),
    userTimeMs: durationMs(record.usage?.userTime),
    systemTimeMs: durationMs(record.usage?.systemTime),
    maxResidentBytes: Number(record.usage?.maxResidentBytes ?? 0n),
    sandboxDenied: record.sandboxDenied,
    ...received,
  };
}

/** Says how a process ended, in words. */
export function describeExit(exit: Exit): string {
  const why = exit.cause === "exited" ? "" : ` (${exit.cause})`;
  if (exit.signal !== undefined) {
    return `killed by SIG${Signal[exit.signal] ?? exit.signal}${why}`;
  }
  return exit.code === undefined ? `ended, and how is not known${why}` : `exited with code ${exit.code}${why}`;
}

/** What `run` returns: all that a process wrote, and how it ended. */
export interface Completed {
  readonly exit: Exit;
  /** What it wrote to stdout, or to its terminal. */
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** The same as text; bytes that are not UTF-8 are U+FFFD. */
  readonly stdoutText: string;
  readonly stderrText: string;
}

/** A process did not succeed, and success was asked for by `check`. */
export class ExitError extends ClientError {
  /** What it wrote, and how it ended. */
  readonly completed: Completed;

  constructor(completed: Completed) {
    const tail = completed.stderrText.slice(-2048).trim();
    super(describeExit(completed.exit) + (tail ? `: ${tail}` : ""));
    this.completed = completed;
  }
}
