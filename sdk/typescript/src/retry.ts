import { ExecwireError } from "./errors.js";
import { pause } from "./time.js";

/** How long a server keeps a process when nobody said: the documented default of its grace. */
export const assumedGraceMs = 30_000;
/** How much later than this client the server may notice that the connection is gone. */
export const graceMarginMs = 45_000;
/** How many failures in a row are retried that something between client and server made up. */
const oddFailures = 5;

const firstMs = 100;
const mostMs = 2_000;

/** Paces attempts to reach somebody: waits double up to the most, cut at random to between a half and all. */
export class Backoff {
  private last = 0;

  reset(): void {
    this.last = 0;
  }

  /** Waits; rejects with the reason of the signal if that comes first. */
  async wait(atLeastMs: number, signal: AbortSignal | undefined): Promise<void> {
    this.last = Math.min(Math.max(2 * this.last, firstMs), mostMs);
    await pause(Math.max(this.last / 2 + Math.random() * (this.last / 2), Math.min(atLeastMs, mostMs)), signal);
  }
}

/** What is known about attempts to reach a server. */
export class Attempts {
  readonly backoff = new Backoff();
  /** Since when the connection is lost, by the clock of performance.now; undefined while it is not. */
  lostAt: number | undefined;
  private odd = 0;

  /** Notes that the connection is worth something. */
  progress(): void {
    this.odd = 0;
    this.backoff.reset();
  }

  lostForMs(): number {
    return this.lostAt === undefined ? 0 : performance.now() - this.lostAt;
  }

  /** Whether the failure may be gone with the next attempt. A connection that gave its place to another principal is a lost one. */
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
        return ++this.odd <= oddFailures;
    }
    return false;
  }

  /** Waits before another attempt after the error, or throws it. */
  async again(error: unknown, withinMs: number, signal: AbortSignal | undefined): Promise<void> {
    this.lostAt ??= performance.now();
    if (!this.transient(error) || this.lostForMs() > withinMs) {
      throw error;
    }
    await this.backoff.wait(error.retryAfterMs, signal);
  }
}
