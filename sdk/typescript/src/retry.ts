import { ExecwireError } from "./errors.js";
import { pause } from "./time.js";

/** The grace period of a server if unspecified: the documented default. */
export const assumedGraceMs = 30_000;
/** How much later than the client the server may detect a lost connection. */
export const graceMarginMs = 45_000;
/**
 * How long after its first sending an unanswered start may be repeated: while the server certainly has the
 * record to recognize a repetition, 30 seconds by the documented default, minus a margin for transmission.
 * Later the command could run twice.
 */
export const startRetryTimeoutMs = 25_000;
/** Limits consecutive retries after errors of intermediaries. */
const maxUnexpected = 5;

const firstMs = 100;
const mostMs = 2_000;

/** Exponential backoff: waits double up to the maximum, with jitter between a half and all. */
export class Backoff {
  private last = 0;

  reset(): void {
    this.last = 0;
  }

  /** Waits; rejects with the reason of the signal if it aborts first. */
  async wait(atLeastMs: number, signal: AbortSignal | undefined): Promise<void> {
    this.last = Math.min(Math.max(2 * this.last, firstMs), mostMs);
    await pause(Math.max(this.last / 2 + Math.random() * (this.last / 2), Math.min(atLeastMs, mostMs)), signal);
  }
}

/** The state of attempts to reach a server. */
export class Attempts {
  readonly backoff = new Backoff();
  /** When the connection was lost, by performance.now; undefined while connected. */
  lostAt: number | undefined;
  private unexpected = 0;

  /** Records that the connection works. */
  progress(): void {
    this.unexpected = 0;
    this.backoff.reset();
  }

  lostForMs(): number {
    return this.lostAt === undefined ? 0 : performance.now() - this.lostAt;
  }

  /**
   * Whether the next attempt may succeed. A connection evicted in favour of another principal is a lost one.
   */
  transient(error: unknown): error is ExecwireError {
    if (!(error instanceof ExecwireError)) {
      return false;
    }
    if (error.code === "UNAVAILABLE" || error.reason === "TOO_MANY_CONNECTIONS") {
      return true;
    }
    if (error.fromServer) {
      return false;
    }
    switch (error.code) {
      case "CANCELLED":
      case "UNKNOWN":
      case "INTERNAL":
      case "ABORTED":
      case "DEADLINE_EXCEEDED":
        return ++this.unexpected <= maxUnexpected;
    }
    return false;
  }

  /** Waits before the next attempt after the error, or throws it. */
  async again(error: unknown, withinMs: number, signal: AbortSignal | undefined): Promise<void> {
    this.lostAt ??= performance.now();
    if (!this.transient(error) || this.lostForMs() > withinMs) {
      throw error;
    }
    await this.backoff.wait(error.retryAfterMs, signal);
  }
}
