import { ExecwireError } from "./errors.js";
import type { RunStart } from "./gen/execwire/v1/process_run_pb.js";
import { assumedGraceMs, Attempts, graceMarginMs } from "./retry.js";
import { durationMs } from "./time.js";

/**
 * For how long after its first sending a start that was not answered may be repeated: while the
 * server still has the record by which it knows a repetition, 30 seconds by its documented
 * default, less the way there. Later the command could run twice.
 */
const repeatWithinMs = 25_000;

/** Whether an error is the answer of another run of the server than the one with the id. */
export function isRestarted(instanceId: string, error: unknown): boolean {
  const answered = error instanceof ExecwireError ? (error.metadata["instance_id"] ?? "") : "";
  return instanceId !== "" && answered !== "" && answered !== instanceId;
}

/** What is known of the connection over which a process is owned: whether another stream is of use. */
export class Link {
  readonly attempts = new Attempts();
  /** When the start was sent first, by the clock of performance.now; undefined while it was not. */
  sentAt: number | undefined;
  /** Whether the server has said that the process runs. */
  started = false;

  /** found is whether the process was there before. */
  constructor(private readonly start: RunStart, private readonly found: boolean, private readonly resumeForMs: number) {}

  /** Notes that the stream is answered, and returns whether the connection was lost before. */
  regain(): boolean {
    const lost = this.attempts.lostAt !== undefined;
    this.attempts.lostAt = undefined;
    this.started = true;
    return lost;
  }

  /** Notes that the connection is lost, and returns whether that is news. */
  lose(): boolean {
    const news = this.attempts.lostAt === undefined;
    this.attempts.lostAt ??= performance.now();
    return news;
  }

  /** What the error means: another stream may be of use, the run fails with it, or nobody knows what became of the process. */
  judge(error: ExecwireError): "again" | "failed" | "lost" {
    const firstTime = this.attempts.lostAt === undefined;
    const wasThere = this.started || (this.found && !firstTime);
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
      return this.attempts.lostForMs() > repeatWithinMs ? "failed" : "again"; // it was never asked for
    }
    return this.graceIsOver() || this.repeatIsLate() ? "lost" : "again";
  }

  /** Whether sending the start, which was never answered, once more could run the command once more. */
  repeatIsLate(): boolean {
    return !this.started && !this.found && this.sentAt !== undefined && performance.now() - this.sentAt > repeatWithinMs;
  }

  /** Whether the server has certainly given the process up, or the client is to. */
  private graceIsOver(): boolean {
    const { grace } = this.start;
    if (grace && durationMs(grace) === 0) {
      return true;
    }
    const keptMs = grace ? durationMs(grace) : assumedGraceMs;
    return this.attempts.lostForMs() > Math.min(keptMs + graceMarginMs, Math.max(this.resumeForMs, grace ? keptMs : 0));
  }
}
