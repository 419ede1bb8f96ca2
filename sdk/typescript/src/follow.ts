import { LostError, ProtocolError, ExecwireError } from "./errors.js";
import { EventTracker, type ProcessEvent } from "./events.js";
import type { ProcessEvent as EventMessage } from "./gen/execwire/v1/process_event_pb.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";
import { durationOf } from "./time.js";

/** What is watched. */
interface Watched {
  readonly sessionId: string;
  readonly processId: string;
  /** Whether to send sizes of the terminal, too. */
  readonly resizes?: boolean;
}

/** Observes the output of a process until it has closed. */
export function follow(rpc: Rpc, named: Watched, afterSeq: number, signal: AbortSignal | undefined): AsyncGenerator<ProcessEvent, void, undefined> {
  const tracker = new EventTracker(named.processId, afterSeq);
  return observe(rpc, named, tracker, (message) => tracker.take(message), signal);
}

/**
 * Observes a process until it has closed, and yields what a function makes of each message, with the tracker, if it is
 * new. It neither owns nor blocks the process: evicted output is a gap event. A lost connection is resumed, and nothing
 * is delivered twice.
 */
export async function* observe<T>(
  rpc: Rpc,
  named: Watched,
  tracker: EventTracker,
  take: (message: EventMessage) => T | undefined,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  const { sessionId, processId } = named;
  const attempts = new Attempts();
  for (let started = false; ; ) {
    try {
      // The server sends no response header before the first event.
      const { process } = await rpc.call((call) => rpc.stubs.processes.getProcess({ sessionId, processId }, call), signal);
      started = true;
      attempts.lostAt = undefined;
      if (process) {
        tracker.setInitialState(process);
      }
      if (!tracker.closed) {
        yield* watch(rpc, named, tracker, take, attempts, signal);
      }
      return;
    } catch (error) {
      const gone = error instanceof ExecwireError && (error.reason === "PROCESS_NOT_FOUND" || error.reason === "SESSION_NOT_FOUND");
      attempts.lostAt ??= performance.now();
      if (started && (gone || attempts.lostForMs() > rpc.resumeForMs)) {
        throw new LostError(
          { processId, started: true, exit: tracker.exit, lastSeq: tracker.last, lostForMs: attempts.lostForMs() },
          error,
        );
      }
      await rpc.again(attempts, error, signal);
    }
  }
}

async function* watch<T>(
  rpc: Rpc,
  named: Watched,
  tracker: EventTracker,
  take: (message: EventMessage) => T | undefined,
  attempts: Attempts,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  const request = { ...named, afterSeq: BigInt(tracker.last) };
  let events: EventMessage[];
  for await ({ events } of rpc.stream((call) => rpc.stubs.processes.watchProcess(request, call), signal)) {
    for (const message of events) {
      const event = take(message);
      if (event !== undefined) {
        attempts.progress();
        yield event;
      }
    }
  }
  if (!tracker.closed) {
    throw new ProtocolError(`the stream ended after seq ${tracker.last} without the closed event`);
  }
}

/** Returns retained events after a cursor, and waits for one if there is none. */
export async function read(
  rpc: Rpc,
  named: { sessionId: string; processId: string },
  options: { readonly afterSeq?: number; readonly waitMs?: number; readonly maxBytes?: number; readonly signal?: AbortSignal },
): Promise<ProcessEvent[]> {
  const { afterSeq = 0, waitMs = 0, maxBytes, signal } = options;
  const request = { ...named, afterSeq: BigInt(afterSeq), wait: durationOf("waitMs", waitMs), ...(maxBytes !== undefined && { maxBytes }) };
  const { events, exit } = await rpc.repeat((call) => rpc.stubs.processes.readOutput(request, call), signal);
  const tracker = new EventTracker(named.processId, afterSeq);
  tracker.setExit(exit);
  return events.map((message) => tracker.take(message)).filter((event) => event !== undefined);
}
