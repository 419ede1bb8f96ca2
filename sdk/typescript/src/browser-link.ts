import { create } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import type { Interceptor, Transport, UnaryRequest } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { messageOf, UsageError } from "./errors.js";
import { ProcessService, type WaitProcessRequest, type WaitProcessResponse } from "./gen/execwire/v1/process_service_pb.js";
import { authorize, type Link, lostConnection, translate } from "./link.js";
import { durationMs, onAbort, pause } from "./time.js";

/** How many connections a browser makes to a server over HTTP/1.1. */
const browserConnections = 6;
/** How long a call that waits may use a connection that another one needs: at first, and at most. */
const firstTurnMs = 100;
const maxTurnMs = 4_000;
/** The pause after an interrupted write, in its turns. */
const pauseFactor = 4;
/** How often a condition is checked while there is no connection to wait for it. */
const pollMs = 250;
type Next = Parameters<Interceptor>[0];
const { writeStdin, waitProcess, terminateProcess } = ProcessService.method;

/** The calls of a page to a server, by fetch. */
export class BrowserLink implements Link {
  readonly transport: Transport;
  readonly bidirectionalUrl = "";
  /** Not called: the calls of a lost connection fail by themselves. */
  onLost: (() => void) | undefined;
  /** A page cannot know: before the first answer nothing is retried, afterwards everything is a lost connection. */
  readonly wasLost = false;
  readonly wasRefused = false;

  constructor(readonly origin: string, readonly token: string | undefined, connections = browserConnections) {
    this.transport = createConnectTransport({
      baseUrl: origin,
      useBinaryFormat: true,
      interceptors: [new CallSlots(connections).limit, translate(restated), authorize(() => token)],
    });
  }

  probe(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  explain(error: unknown): unknown {
    const page = (globalThis as { location?: { origin: string } }).location?.origin ?? "this page";
    return new Error(`${messageOf(error)}: nothing answers by Connect, or the server does not allow ${page} (its setting allowed_origins)`, { cause: error });
  }

  close(): void {
    // Its calls have ended, and the browser has the connections.
  }
}

/** fetch reports every failure of the network as a TypeError, and a response that is cut off may end in order. */
function restated(error: unknown): unknown {
  return error instanceof TypeError || error === "missing EndStreamResponse" ? lostConnection(error) : error;
}

/**
 * Shares the connections of a browser. A call that gets none would wait for streams that end with their processes, and
 * it may be the acknowledgement that such a process waits for. So one connection is left to calls that end soon. The
 * last but one is left to calls that wait, which take turns. Streams beyond the others fail.
 */
class CallSlots {
  private readonly slots: number;
  private used = 0;
  private streams = 0;
  private readonly waiting = new Set<() => void>();
  /** Long enough for the writes that have succeeded. */
  private turnMs = firstTurnMs;

  constructor(private readonly connections: number) {
    if (!Number.isInteger(connections) || connections < 3) {
      throw new UsageError(`connections is ${connections}: give 3 or more`);
    }
    this.slots = connections - 1;
  }

  readonly limit: Interceptor = (next) => async (request) => {
    const { method, signal } = request;
    if (request.stream) {
      if (this.streams === this.slots - 1) {
        throw new UsageError(
          `${this.streams} streams are open, and the browser makes ${this.connections} connections to a server: end one, or set connections if the server is reached by HTTP/2`,
        );
      }
      this.streams++;
      whenAborted(signal, () => this.streams--); // it aborts however the call ends
      await this.take(signal);
      whenAborted(signal, this.release);
      return next(request);
    }
    if (method === waitProcess) {
      return this.wait(next, request);
    }
    if (method === terminateProcess) {
      await this.take(signal);
      return next(request).finally(this.release);
    }
    return method === writeStdin ? this.write(next, request) : next(request);
  };

  /**
   * Writes to a process. A write that waits for it is interrupted and, as the owner of a process may, repeated: each time
   * with a longer turn, because the connection may be slow, and after a longer pause, so that it takes little from writes
   * to processes that read.
   */
  private async write(next: Next, request: UnaryRequest): ReturnType<Next> {
    for (let turnMs = this.turnMs; ; turnMs = Math.min(2 * turnMs, maxTurnMs)) {
      const response = await this.interruptible(next, request, turnMs);
      if (response) {
        this.turnMs = Math.max(this.turnMs, turnMs);
        return response;
      }
      await pause(pauseFactor * turnMs, request.signal);
    }
  }

  /** Waits for a condition or, while other calls need the connection, checks it: the caller asks again. */
  private async wait(next: Next, request: UnaryRequest): ReturnType<Next> {
    const response = this.used < this.slots ? await this.interruptible(next, request, this.turnMs) : undefined;
    if (response) {
      return response;
    }
    const message = request.message as WaitProcessRequest;
    const waitMs = message.wait ? durationMs(message.wait) : pollMs;
    message.wait = create(DurationSchema);
    await this.take(request.signal);
    const checked = await next(request).finally(this.release);
    if (!(checked.message as WaitProcessResponse).satisfied) {
      await pause(Math.min(waitMs, pollMs), request.signal);
    }
    return checked;
  }

  /** Makes a call, and returns undefined if it was interrupted because others need its connection. */
  private async interruptible(next: Next, request: UnaryRequest, turnMs: number): Promise<Awaited<ReturnType<Next>> | undefined> {
    await this.take(request.signal);
    const turn = new AbortController();
    const timer = setInterval(() => this.waiting.size > 0 && turn.abort(), turnMs);
    try {
      return await next({ ...request, signal: AbortSignal.any([request.signal, turn.signal]) });
    } catch (error) {
      if (!turn.signal.aborted || request.signal.aborted) {
        throw error;
      }
      return undefined;
    } finally {
      clearInterval(timer);
      this.release();
    }
  }

  /** Waits for a slot, first come, first served. */
  private async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.used < this.slots) {
      this.used++;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const given = (): void => {
        forget();
        resolve();
      };
      const forget = onAbort(signal, () => {
        this.waiting.delete(given);
        reject(signal.reason);
      });
      this.waiting.add(given);
    });
  }

  private readonly release = (): void => {
    for (const give of this.waiting) {
      this.waiting.delete(give);
      give();
      return;
    }
    this.used--;
  };
}

function whenAborted(signal: AbortSignal, call: () => void): void {
  if (signal.aborted) {
    call();
  } else {
    onAbort(signal, call);
  }
}
