import { type Completed, describeExit, type Exit } from "./exit.js";

/** The base class of all errors of this package. An aborted call throws the reason of its signal instead. */
export class ClientError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument, a URL or a combination of options is invalid. */
export class UsageError extends ClientError {}

/** A token or certificate is unusable, or must not be sent to this server. */
export class CredentialError extends ClientError {}

/** A server could not be reached. */
export class ConnectionError extends ClientError {
  /** The URL given to connect. */
  readonly url: string;

  constructor(url: string, cause: unknown) {
    super(`failed to reach ${url}: ${messageOf(cause)}`, { cause });
    this.url = url;
  }
}

/** The client, or the process, was closed. */
export class ClosedError extends ClientError {}

/** An invalid field of a request. */
export interface FieldViolation {
  /** The path of the field, e.g. "command.direct.argv". */
  readonly field: string;
  /** What is wrong and how to fix it. */
  readonly description: string;
}

/** The details of an error from a server. */
export interface ErrorDetails {
  /** The cause, as in {@link ExecwireError.reason}. */
  readonly reason: string;
  /** The values documented for the reason. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The invalid fields of the request. */
  readonly fields: readonly FieldViolation[];
  /** The process, session or path concerned, or empty. */
  readonly resource: string;
  /** How long the server asks to wait, in milliseconds, or 0. */
  readonly retryAfterMs: number;
}

const noDetails: ErrorDetails = { reason: "", metadata: {}, fields: [], resource: "", retryAfterMs: 0 };

/** An error returned by a server. Branch on its class or reason, never on the message. */
export class ExecwireError extends ClientError {
  /** The gRPC code, e.g. "NOT_FOUND". */
  readonly code: string;
  /**
   * The cause, e.g. "PROCESS_NOT_FOUND": a name of ErrorReason without its prefix. Empty if the error comes
   * from an intermediary instead of an execwire server.
   */
  readonly reason: string;
  /** The invalid fields of the request. */
  readonly fields: readonly FieldViolation[];
  /** The process, session or path concerned, or empty. */
  readonly resource: string;
  /** The values documented for the reason, e.g. limit_bytes. */
  readonly metadata: Readonly<Record<string, string>>;
  /** How long the server asks to wait, in milliseconds, or 0. */
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

  /** Whether an execwire server returned the error, and not an intermediary. */
  get fromServer(): boolean {
    return this.reason !== "";
  }

  /** The errno of the server's operating system, e.g. "ENOENT", or empty. */
  get errno(): string {
    return this.metadata["errno"] ?? "";
  }
}

/** It does not exist, or belongs to another principal. */
export class NotFoundError extends ExecwireError {}
/** A path, or a part of it, does not exist. */
export class PathNotFoundError extends NotFoundError {}
/** The program was not found: no such file, or not in the PATH of the process. */
export class ProgramNotFoundError extends NotFoundError {}
/** It already exists. */
export class AlreadyExistsError extends ExecwireError {}
/** The path already exists. */
export class PathExistsError extends AlreadyExistsError {}
/** The server, or its operating system, denies permission. */
export class PermissionDeniedError extends ExecwireError {}
/** The path is a directory, which the call does not support. */
export class IsDirectoryError extends ExecwireError {}
/** The path, or a component of it, is not a directory. */
export class NotDirectoryError extends ExecwireError {}
/** The server does not authenticate the caller: the token is missing or wrong. */
export class UnauthenticatedError extends ExecwireError {}
/** A field of the request is invalid; see `fields`. */
export class InvalidRequestError extends ExecwireError {}
/** A limit of the server or its machine was reached; see `metadata`. */
export class LimitError extends ExecwireError {}
/** A process could not be started. */
export class StartError extends ExecwireError {}
/** The sandbox is unavailable; nothing was run or changed. */
export class SandboxError extends StartError {}
/** The process accepts no more input, or never did. */
export class StdinClosedError extends ExecwireError {}
/** The process has ended, with all its descendants. */
export class ProcessEndedError extends ExecwireError {}
/** Another client has taken over the process, session or upload. */
export class TakenOverError extends ExecwireError {}
/** The server cannot be reached, or is shutting down; try again. */
export class UnavailableError extends ExecwireError {}
/** The connection was lost, and the call certainly had no effect: it was not sent. */
export class NotDoneError extends UnavailableError {}
/** The connection was lost before the answer: the call may have had its effect, or may have it later. */
export class UnknownError extends UnavailableError {}
/** The server does not implement the call. */
export class UnimplementedError extends ExecwireError {}
/** The content, version or digest of a file is not the expected one. */
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
  USER_UNAVAILABLE: StartError,
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

/** Returns the error for the answer of a server. @internal */
export function makeError(code: string, message: string, details?: ErrorDetails, cause?: unknown): ExecwireError {
  const kind = byReason[details?.reason ?? ""] ?? byCode[code] ?? ExecwireError;
  return new kind(code, message, details, cause === undefined ? undefined : { cause });
}

/** The server violated the contract; received data may be incomplete. */
export class ProtocolError extends ClientError {
  constructor(problem: string) {
    super(`the server broke the contract: ${problem}`);
  }
}

/** The connection was lost and the state of the process is unknown. */
export class LostError extends ClientError {
  /** The process. */
  readonly processId: string;
  /** Whether the server confirmed that it runs. If not, it may or may not have run. */
  readonly started: boolean;
  /** How it ended, if known, though output may be missing. */
  readonly exit: Exit | undefined;
  /** The seq of the last received event. */
  readonly lastSeq: number;
  /** How long the connection was lost, in milliseconds. */
  readonly lostForMs: number;

  constructor(lost: { processId: string; started: boolean; exit: Exit | undefined; lastSeq: number; lostForMs: number }, cause: unknown) {
    const state = lost.exit ? "it had exited" : lost.started ? "it was running" : "which may or may not have run";
    super(`failed to resume process ${lost.processId}, ${state}, for ${(lost.lostForMs / 1000).toFixed(1)} s: ${messageOf(cause)}`, { cause });
    this.processId = lost.processId;
    this.started = lost.started;
    this.exit = lost.exit;
    this.lastSeq = lost.lastSeq;
    this.lostForMs = lost.lostForMs;
  }
}

/** The server was restarted, which ended the process. A start that it had not confirmed is not repeated then. */
export class RestartedError extends LostError {
  constructor(lost: ConstructorParameters<typeof LostError>[0], cause: unknown) {
    super(lost, cause);
    this.message = lost.started
      ? `the server was restarted; the process ${lost.processId} ended with it`
      : `the server was restarted before it answered; it is unknown whether the process ${lost.processId} was started`;
  }
}

/** A process wrote more than the limit; it was terminated. */
export class OutputLimitError extends ClientError {
  /** The limit, in bytes. */
  readonly limitBytes: number;

  constructor(limitBytes: number) {
    super(`the process wrote more than maxOutputBytes, ${limitBytes}: iterate over its events, or write its output to a file`);
    this.limitBytes = limitBytes;
  }
}

/** A process did not succeed, with `check`. */
export class ExitError extends ClientError {
  /** Its output, as text or bytes as was asked for, and how it ended. */
  readonly completed: Completed<boolean>;

  constructor(completed: Completed<boolean>) {
    const last = completed.stderr.slice(-2048);
    const tail = (typeof last === "string" ? last : new TextDecoder().decode(last)).trim();
    super(describeExit(completed.exit) + (tail ? `: ${tail}` : ""));
    this.completed = completed;
  }
}

/** A process of `run` was killed: it ran longer than its timeoutMs, or was silent for longer than its noOutputTimeoutMs. */
export class ProcessTimeoutError extends ExitError {}

/** The downloaded content has another digest than the server sent. */
export class DigestError extends ClientError {
  constructor(path: string) {
    super(`failed to download ${path}: the received content does not match the SHA-256 of the server: download it again`);
  }
}

/** The content to upload, or a directory to copy, could not be read. */
export class ReadError extends ClientError {}

/** The answer is incomplete: there are more directories, or ports, than the server reports at once. */
export class TruncatedError extends ClientError {}

/** The message of a cause. @internal */
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
