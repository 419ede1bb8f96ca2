import type { MessageInitShape } from "@bufbuild/protobuf";
import { OutputStream } from "./gen/execwire/v1/process_event_pb.js";
import type { Process as Description } from "./gen/execwire/v1/process_pb.js";
import type { WaitProcessRequestSchema } from "./gen/execwire/v1/process_service_pb.js";
import { ProcessState } from "./gen/execwire/v1/process_pb.js";
import type { StreamName } from "./events.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";
import { durationOf } from "./time.js";

/** A condition to wait for. */
export type Condition =
  | {
      /** Its exit is known. */
      readonly exit: true;
    }
  | {
      /** All its output has ended. */
      readonly closed: true;
    }
  | {
      /** Its output matches this regular expression, in RE2 syntax. */
      readonly pattern: string;
      /** The stream to search; absent is all. */
      readonly stream?: StreamName;
      /** Searches output after the event with this seq. Absent begins with everything retained. */
      readonly afterSeq?: number;
    }
  | {
      /** It, or a descendant, listens on this TCP port. */
      readonly port: number;
    }
  | {
      /** It has written nothing for this long, in milliseconds. */
      readonly idleMs: number;
    }
  | {
      /** The lines of its terminal's screen match this regular expression, in RE2 syntax; empty is any text. */
      readonly screen: string;
      /** And the screen has not changed for this long, in milliseconds. */
      readonly screenIdleMs?: number;
    };

/** What a pattern matched. */
export interface Match {
  /** How many bytes of the stream precede it. */
  readonly offset: number;
  /** The matching bytes. */
  readonly data: Uint8Array;
  /** The seq of the event with its last byte. */
  readonly seq: number;
}

/** The result of a wait. */
export interface Waited {
  /** Whether the condition holds. False if the wait expired first, or it can no longer hold. */
  readonly satisfied: boolean;
  /** The process at the time of the answer. */
  readonly process: Description | undefined;
  /** The match of a pattern. */
  readonly match: Match | undefined;
}

/** Waits beyond the longest wait of the server and across lost connections. Absent waitMs has no limit. */
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
      // Check once more: the output may match since before the close. Idleness needs none.
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
  if ("screen" in condition) {
    return { case: "screen", value: { regularExpression: condition.screen, idle: durationOf("screenIdleMs", condition.screenIdleMs ?? 0) } };
  }
  return "closed" in condition ? { case: "closed", value: {} } : { case: "exit", value: {} };
}
