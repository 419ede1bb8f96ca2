import type { Exit } from "./exit.js";

/** What every error of this package is. An aborted call throws the reason of its signal instead. */
export class ClientError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument, a URL or a combination of options cannot be meant. */
export class UsageError extends ClientError {}

/** A token or a certificate cannot be used, or must not be sent there. */
export class CredentialError extends ClientError {}

/** A server could not be reached. */
export class ConnectionError extends ClientError {
  /** What was dialed. */
  readonly url: string;

  constructor(url: string, cause: unknown) {
    super(`failed to reach ${url}: ${messageOf(cause)}`, { cause });
    this.url = url;
  }
}

/** The client was closed, or the process was let go of. */
export class ClosedError extends ClientError {}

/** What is wrong with a field of a request. */
export interface FieldViolation {
  /** The path of the field, e.g. "command.direct.argv". */
  readonly field: string;
  /** What is wrong, and what would be right. */
  readonly description: string;
}

/** What a server said about an error beside its code and text. */
export interface ErrorDetails {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly fields: readonly FieldViolation[];
  readonly resource: string;
  readonly retryAfterMs: number;
}

const noDetails: ErrorDetails = { reason: "", metadata: {}, fields: [], resource: "", retryAfterMs: 0 };

/** An error that a server answered with. Branch on its class or its reason, never on the message. */
export class ExecwireError extends ClientError {
  /** The gRPC code, e.g. "NOT_FOUND". */
  readonly code: string;
  /**
   * Why, e.g. "PROCESS_NOT_FOUND": a name of ErrorReason without its prefix. Empty when the
   * error is not from an execwire server but from what lies between.
   */
  readonly reason: string;
  /** The fields of the request that are wrong. */
  readonly fields: readonly FieldViolation[];
  /** The process, session or path in question, or empty. */
  readonly resource: string;
  /** What the reason is documented to carry, e.g. limit_bytes. */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long the server asks to wait, in milliseconds; 0 when it does not ask. */
  readonly retryAfterMs: number;

  constructor(code: string, message: string, details: ErrorDetails = noDetails, options?: ErrorOptions) {
    super(withFields(message, details.fields), options);
    this.code = code;
    this.reason = details.reason;
    this.fields = details.fields;
    this.resource = details.resource;
    this.metadata = details.metadata;
    this.retryAfterMs = details.retryAfterMs;
  }

  /** Whether an execwire server made the error, and not what lies between. */
  get fromServer(): boolean {
    return this.reason !== "";
  }

  /** What the operating system of the server said, e.g. "ENOENT"; empty if it said nothing. */
  get errno(): string {
    return this.metadata["errno"] ?? "";
  }
}

/** What was named is not there, or is somebody else's. */
export class NotFoundError extends ExecwireError {}
/** A path, or a part of it, does not exist. */
export class PathNotFoundError extends NotFoundError {}
/** The program was not found: no such file, or not in the PATH of the process. */
export class ProgramNotFoundError extends NotFoundError {}
/** What was to be made is there already. */
export class AlreadyExistsError extends ExecwireError {}
/** A path exists already. */
export class PathExistsError extends AlreadyExistsError {}
/** The server, or its operating system, does not allow it. */
export class PermissionDeniedError extends ExecwireError {}
/** A path is a directory, and the call is not for those. */
export class IsDirectoryError extends ExecwireError {}
/** A path, or what is before one of its slashes, is not a directory. */
export class NotDirectoryError extends ExecwireError {}
/** The caller is not known to the server: no token, or a wrong one. */
export class UnauthenticatedError extends ExecwireError {}
/** A field of the request is malformed; `fields` says which. */
export class InvalidRequestError extends ExecwireError {}
/** A limit of the server or of its machine was reached; `metadata` says which. */
export class LimitError extends ExecwireError {}
/** A process could not be started. */
export class StartError extends ExecwireError {}
/** The sandbox cannot be had; nothing ran, and no file was touched. */
export class SandboxError extends StartError {}
/** The process takes no input any more, or never did. */
export class StdinClosedError extends ExecwireError {}
/** The process has ended, and nothing of it is left to act on. */
export class ProcessEndedError extends ExecwireError {}
/** Somebody else owns the process, the session or the upload now. */
export class TakenOverError extends ExecwireError {}
/** The server cannot be reached, or starts nothing new; try again. */
export class UnavailableError extends ExecwireError {}
/** The server does not have what was asked for. */
export class UnimplementedError extends ExecwireError {}
/** A file is not what it was taken for: its content, version or digest differs. */
export class ChangedError extends ExecwireError {}

type ErrorClass = new (code: string, message: string, details?: ErrorDetails, options?: ErrorOptions) => ExecwireError;

const byReason: Readonly<Record<string, ErrorClass>> = {
  PATH_NOT_FOUND: PathNotFoundError,
  PATH_ALREADY_EXISTS: PathExistsError,
  IS_A_DIRECTORY: IsDirectoryError,
  NOT_A_DIRECTORY: NotDirectoryError,
  PROGRAM_NOT_FOUND: ProgramNotFoundError,
  PROGRAM_NOT_EXECUTABLE: StartError,
  BAD_WORKING_DIRECTORY: StartError,
  ARGUMENT_LIST_TOO_LONG: StartError,
  SANDBOX_UNAVAILABLE: SandboxError,
  SANDBOX_PATH_UNSAFE: SandboxError,
  SANDBOX_NOT_STARTED: SandboxError,
  SANDBOX_TOO_LARGE: SandboxError,
  STDIN_CLOSED: StdinClosedError,
  STDIN_NOT_PIPED: StdinClosedError,
  PROCESS_EXITED: ProcessEndedError,
  PROCESS_TAKEN_OVER: TakenOverError,
  SESSION_TAKEN_OVER: TakenOverError,
  UPLOAD_TAKEN_OVER: TakenOverError,
  FILE_CHANGED: ChangedError,
  CONTENT_NOT_MATCHED: ChangedError,
  DIGEST_MISMATCH: ChangedError,
  HTTP_DISABLED: UnimplementedError,
};

const byCode: Readonly<Record<string, ErrorClass>> = {
  NOT_FOUND: NotFoundError,
  ALREADY_EXISTS: AlreadyExistsError,
  PERMISSION_DENIED: PermissionDeniedError,
  UNAUTHENTICATED: UnauthenticatedError,
  INVALID_ARGUMENT: InvalidRequestError,
  RESOURCE_EXHAUSTED: LimitError,
  UNAVAILABLE: UnavailableError,
  UNIMPLEMENTED: UnimplementedError,
};

/** Returns the error for what a server answered. */
export function makeError(code: string, message: string, details?: ErrorDetails, cause?: unknown): ExecwireError {
  const kind = byReason[details?.reason ?? ""] ?? byCode[code] ?? ExecwireError;
  return new kind(code, message, details, cause === undefined ? undefined : { cause });
}

/** A server broke the contract; what was received cannot be trusted to be whole. */
export class ProtocolError extends ClientError {
  constructor(problem: string) {
    super(`the server broke the contract: ${problem}`);
  }
}

/** The connection was lost, and what became of the process cannot be learned. */
export class LostError extends ClientError {
  /** The process. */
  readonly processId: string;
  /** Whether the server ever said that it runs. If not, whether it ran is not known. */
  readonly started: boolean;
  /** How it ended if that was still told, though perhaps not all of its output. */
  readonly exit: Exit | undefined;
  /** The seq of the last event that was received. */
  readonly lastSeq: number;
  /** For how long the connection was lost, in milliseconds. */
  readonly lostForMs: number;

  constructor(lost: { processId: string; started: boolean; exit: Exit | undefined; lastSeq: number; lostForMs: number }, cause: unknown) {
    const state = lost.exit ? "it had exited" : lost.started ? "it was running" : "of which it is not known whether it ran";
    super(`failed to resume process ${lost.processId}, ${state}, for ${(lost.lostForMs / 1000).toFixed(1)} s: ${messageOf(cause)}`, { cause });
    this.processId = lost.processId;
    this.started = lost.started;
    this.exit = lost.exit;
    this.lastSeq = lost.lastSeq;
    this.lostForMs = lost.lostForMs;
  }
}

/** The server was restarted, which ended the process. */
export class RestartedError extends LostError {
  constructor(lost: ConstructorParameters<typeof LostError>[0], cause: unknown) {
    super(lost, cause);
    this.message = `the server was restarted; the process ${lost.processId} ended with it`;
  }
}

/** A process wrote more than was to be kept of it; it was terminated. */
export class OutputLimitError extends ClientError {
  /** The bound that was passed, in bytes. */
  readonly limitBytes: number;

  constructor(limitBytes: number) {
    super(`the process wrote more than maxOutputBytes, ${limitBytes}: iterate over its events, or write its output to a file`);
    this.limitBytes = limitBytes;
  }
}

/** What was downloaded is not what the server had sent. */
export class DigestError extends ClientError {
  constructor(path: string) {
    super(`failed to download ${path}: what has arrived has another SHA-256 than what was sent: download it again`);
  }
}

/** Not all of a directory was told: it has more directories than the server reads at once. */
export class TruncatedError extends ClientError {}

/** What to say of a cause in a message. */
export function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

function withFields(message: string, fields: readonly FieldViolation[]): string {
  const more: string[] = [];
  for (const { field, description } of fields) {
    if (!message.includes(description)) {
      more.push(`${field}: ${description}`);
    } else if (!message.includes(field)) {
      more.push(field);
    }
  }
  return more.length === 0 ? message : `${message} (${more.join("; ")})`;
}
