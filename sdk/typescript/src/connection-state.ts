import { ExecwireError } from "./errors.js";
import type { RunStart } from "./gen/execwire/v1/process_run_pb.js";
import { assumedGraceMs, Attempts, graceMarginMs, startRetryTimeoutMs } from "./retry.js";
import { durationMs } from "./time.js";

/** Whether an error comes from another instance of the server than the one with this id. */
export function isRestarted(instanceId: string, error: unknown): boolean {
  const answered = error instanceof ExecwireError ? (error.metadata["instance_id"] ?? "") : "";
  return instanceId !== "" && answered !== "" && answered !== instanceId;
}

/** The state of the connection of an owned process, which decides whether another stream may succeed. */
export class ConnectionState {
  readonly attempts = new Attempts();
  /** When the start was first sent, by performance.now; undefined before. */
  sentAt: number | undefined;
  /** Whether the server confirmed that the process runs. */
  started = false;

  /** existing is whether the process existed before. */
  constructor(private readonly start: RunStart, private readonly existing: boolean, private readonly resumeForMs: number) {}

  /** Records that the stream was answered, and returns whether the connection was lost before. */
  setConnected(): boolean {
    const lost = this.attempts.lostAt !== undefined;
    this.attempts.lostAt = undefined;
    this.started = true;
    return lost;
  }

  /** Records that the connection is lost, and returns whether it was not before. */
  setLost(): boolean {
    const first = this.attempts.lostAt === undefined;
    this.attempts.lostAt ??= performance.now();
    return first;
  }

  /**
   * Classifies an error: another stream may succeed, the run fails with it, or the state of the process is
   * unknown.
   */
  classify(error: ExecwireError): "again" | "failed" | "lost" {
    const firstTime = this.attempts.lostAt === undefined;
    const wasThere = this.started || !firstTime; // or may have been, before a restart of the server
    if (wasThere && (error.reason === "PROCESS_NOT_FOUND" || error.reason === "SESSION_NOT_FOUND")) {
      return "lost";
    }
    if (!this.started && firstTime && (error.reason === "DRAINING" || error.reason === "SANDBOX_NOT_STARTED")) {
      return "failed";
    }
    if (!this.attempts.transient(error)) {
      return "failed";
    }
    if (this.sentAt === undefined) {
      return this.attempts.lostForMs() > startRetryTimeoutMs ? "failed" : "again"; // it was never sent
    }
    return this.graceExpired() || this.startRetryExpired() ? "lost" : "again";
  }

  /** Whether repeating the unanswered start could run the command twice. */
  startRetryExpired(): boolean {
    return !this.started && !this.existing && this.sentAt !== undefined && performance.now() - this.sentAt > startRetryTimeoutMs;
  }

  /** Whether the server has certainly ended the process, or the client must give up. */
  private graceExpired(): boolean {
    const { grace } = this.start;
    if (grace && durationMs(grace) === 0) {
      return true;
    }
    const keptMs = grace ? durationMs(grace) : assumedGraceMs;
    return this.attempts.lostForMs() > Math.min(keptMs + graceMarginMs, Math.max(this.resumeForMs, grace ? keptMs : 0));
  }
}
