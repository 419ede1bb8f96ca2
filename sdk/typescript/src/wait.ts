import type { MessageInitShape } from "@bufbuild/protobuf";
import { OutputStream } from "./gen/execwire/v1/process_event_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import type { WaitProcessRequestSchema } from "./gen/execwire/v1/process_service_pb.js";
import { ProcessState } from "./gen/execwire/v1/process_pb.js";
import type { StreamName } from "./events.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";
import { durationOf } from "./time.js";

/** What to wait for. */
export type Condition =
  /** Its exit is known. */
  | { readonly exit: true }
  /** Its log has ended. */
  | { readonly closed: true }
  /** Its output matches a regular expression in RE2 syntax, from a cursor on. */
  | { readonly pattern: string; readonly stream?: StreamName; readonly afterSeq?: number }
  /** It, or a descendant of it, listens on a TCP port. */
  | { readonly port: number }
  /** It has been silent for so long. */
  | { readonly idleMs: number };

/** What waiting came to. */
export interface Waited {
  /** Whether the condition holds. False means that the wait was over first, or that it cannot come true any more. */
  readonly satisfied: boolean;
  /** The process when the answer was made. */
  readonly process: Description | undefined;
  /** What matched a pattern. */
  readonly match: { readonly offset: number; readonly data: Uint8Array; readonly seq: number } | undefined;
}

/** Waits across lost connections, for longer than the server's longest wait. Absent waitMs has no end. */
export async function waitFor(
  rpc: Rpc,
  named: { sessionId: string; processId: string },
  condition: Condition,
  options: { waitMs?: number; signal?: AbortSignal },
): Promise<Waited> {
  const until = options.waitMs === undefined ? undefined : performance.now() + options.waitMs;
  let attempts = new Attempts();
  for (let closed = false; ; ) {
    const left = until === undefined ? undefined : Math.max(0, until - performance.now());
    try {
      const response = await rpc.call(
        (call) =>
          rpc.stubs.processes.waitProcess(
            { ...named, condition: conditionMessage(condition), ...(left !== undefined && { wait: durationOf("waitMs", left) }) },
            call,
          ),
        options.signal,
      );
      attempts = new Attempts();
      if (response.satisfied || closed || left === 0) {
        const { match } = response;
        return {
          satisfied: response.satisfied,
          process: response.process,
          match: match && { offset: Number(match.offset), data: match.data, seq: Number(match.seq) },
        };
      }
      // One more look: it may have said something before it closed. Silence goes on.
      closed = response.process?.state === ProcessState.CLOSED && !("idleMs" in condition);
    } catch (error) {
      await rpc.again(attempts, error, options.signal);
    }
  }
}

function conditionMessage(condition: Condition): NonNullable<MessageInitShape<typeof WaitProcessRequestSchema>["condition"]> {
  if ("pattern" in condition) {
    const streams = { stdout: OutputStream.STDOUT, stderr: OutputStream.STDERR, terminal: OutputStream.TERMINAL };
    return {
      case: "pattern",
      value: {
        regularExpression: condition.pattern,
        stream: condition.stream ? streams[condition.stream] : OutputStream.UNSPECIFIED,
        afterSeq: BigInt(condition.afterSeq ?? 0),
      },
    };
  }
  if ("port" in condition) {
    return { case: "port", value: { port: condition.port } };
  }
  if ("idleMs" in condition) {
    return { case: "idle", value: { silence: durationOf("idleMs", condition.idleMs) } };
  }
  return "closed" in condition ? { case: "closed", value: {} } : { case: "exit", value: {} };
}
