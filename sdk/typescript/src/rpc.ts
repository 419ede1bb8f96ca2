import { type CallOptions, type Client, createClient, type Transport } from "@connectrpc/connect";
import { ClosedError, NotDoneError, UnknownError } from "./errors.js";
import { AdminService } from "./gen/execwire/v1/admin_pb.js";
import { EnvironmentService } from "./gen/execwire/v1/environment_pb.js";
import { FileSystemService } from "./gen/execwire/v1/filesystem_pb.js";
import { HttpService } from "./gen/execwire/v1/http_pb.js";
import { PortService } from "./gen/execwire/v1/port_pb.js";
import { ProcessService } from "./gen/execwire/v1/process_service_pb.js";
import { SessionService } from "./gen/execwire/v1/session_pb.js";
import { type Link, wasUnsent } from "./link.js";
import { Slots } from "./queue.js";
import { Attempts } from "./retry.js";
import { fromRpc } from "./status.js";
import { LinkedSignal } from "./time.js";

/** One for all: the stack of an error is expensive. */
const callOver = new ClosedError("the call is over");

/** How many uploads are sent at once: more would not be faster. */
const maxUploads = 64;

/** The generated clients of a server. */
export interface Stubs {
  /** Starts, controls and observes processes. */
  readonly processes: Client<typeof ProcessService>;
  /** Files, trees and watches. */
  readonly files: Client<typeof FileSystemService>;
  /** What the server is and allows. */
  readonly environment: Client<typeof EnvironmentService>;
  /** Sessions and their events. */
  readonly sessions: Client<typeof SessionService>;
  /** HTTP requests made by the server. */
  readonly http: Client<typeof HttpService>;
  /** The ports of processes. */
  readonly ports: Client<typeof PortService>;
  /** Operates the server; it needs the permission "admin". */
  readonly admin: Client<typeof AdminService>;
}

/** Calls to a server that end with their client, and fail with typed errors. */
export class Rpc {
  readonly stubs: Stubs;
  private readonly closing = new AbortController();
  private readonly listeners = new Set<() => void>();
  private readonly uploads = new Set<Promise<unknown>>();
  /** Further uploads wait: the server refuses those beyond its limit. */
  private uploadSlots = new Slots(maxUploads);

  /** resumeForMs is how long lost connections are resumed without a grace period of a process. */
  constructor(readonly link: Link, readonly resumeForMs: number) {
    const { transport } = link;
    this.stubs = {
      processes: createClient(ProcessService, transport),
      files: createClient(FileSystemService, transport),
      environment: createClient(EnvironmentService, transport),
      sessions: createClient(SessionService, transport),
      http: createClient(HttpService, transport),
      ports: createClient(PortService, transport),
      admin: createClient(AdminService, transport),
    };
  }

  get transport(): Transport {
    return this.link.transport;
  }

  /** Ends all calls, and rejects later ones, with ClosedError. */
  close(): void {
    this.fail(new ClosedError("the client was closed"));
  }

  /** Ends all calls, and rejects later ones, with a reason. The first reason is kept. */
  fail(reason: unknown): void {
    this.closing.abort(reason);
  }

  /** Adopts a limit of the server. There must be no upload yet. */
  limitUploads(limit: number): void {
    this.uploadSlots = new Slots(Math.min(limit || maxUploads, maxUploads));
  }

  /** Makes an upload in its turn. `ended` waits for it, because it drops its data on the server when interrupted. */
  async own<R>(make: () => Promise<R>, signal?: AbortSignal): Promise<R> {
    const upload = this.uploadSlots.run(make, signal);
    this.uploads.add(upload);
    try {
      return await upload;
    } finally {
      this.uploads.delete(upload);
    }
  }

  /** Resolves when all uploads have ended, which `close` causes. */
  async ended(): Promise<void> {
    await Promise.allSettled(this.uploads);
  }

  /** Aborts when the client is closed, or the connection is permanently lost. */
  get lifetime(): AbortSignal {
    return this.closing.signal;
  }

  /**
   * Registers a function that is called whenever a connection is lost; the returned function unregisters it.
   */
  onLost(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Reports that a connection is lost. */
  lost(): void {
    for (const listener of this.listeners) {
      listener();
    }
  }

  /** Makes one call. */
  async call<R>(make: (options: CallOptions) => Promise<R>, signal?: AbortSignal): Promise<R> {
    const linked = new LinkedSignal(this.lifetime, signal);
    try {
      linked.signal.throwIfAborted();
      return await make({ signal: linked.signal });
    } catch (error) {
      linked.signal.throwIfAborted();
      throw fromRpc(error);
    } finally {
      linked.dispose();
    }
  }

  /**
   * Makes a call that must not take effect twice, and repeats it while it was not sent. If the connection is lost,
   * throws NotDoneError or UnknownError.
   */
  async once<R>(make: (options: CallOptions) => Promise<R>, signal?: AbortSignal): Promise<R> {
    const attempts = new Attempts();
    for (;;) {
      try {
        return await this.call(make, signal);
      } catch (error) {
        if (!attempts.transient(error) || (error.fromServer && error.reason !== "TOO_MANY_CONNECTIONS")) {
          throw error;
        }
        if (!wasUnsent(error)) {
          throw new UnknownError(error.code, `${error.message}: it is unknown whether the call took effect`, undefined, { cause: error });
        }
        await this.again(attempts, error, signal).catch((last: unknown) => {
          throw last === error ? new NotDoneError(error.code, `${error.message}: the call was not sent`, undefined, { cause: error }) : last;
        });
      }
    }
  }

  /** Makes an idempotent call, and repeats it while the connection is lost; with withinMs only so long after its first sending. */
  async repeat<R>(make: (options: CallOptions) => Promise<R>, signal?: AbortSignal, withinMs?: number): Promise<R> {
    const attempts = new Attempts();
    attempts.lostAt = withinMs === undefined ? undefined : performance.now();
    for (;;) {
      try {
        return await this.call(make, signal);
      } catch (error) {
        await this.again(attempts, error, signal, withinMs);
      }
    }
  }

  /** Waits before the next attempt after the error, or throws it. */
  async again(attempts: Attempts, error: unknown, signal?: AbortSignal, withinMs = this.resumeForMs): Promise<void> {
    const linked = new LinkedSignal(this.lifetime, signal);
    try {
      linked.signal.throwIfAborted();
      await attempts.again(error, withinMs, linked.signal);
    } finally {
      linked.dispose();
    }
  }

  /** Streams messages of a server. The call ends with the iteration. */
  async *stream<R>(make: (options: CallOptions) => AsyncIterable<R>, signal?: AbortSignal): AsyncGenerator<R, void, undefined> {
    const linked = new LinkedSignal(this.lifetime, signal);
    try {
      linked.signal.throwIfAborted();
      yield* make({ signal: linked.signal });
    } catch (error) {
      linked.signal.throwIfAborted();
      throw fromRpc(error);
    } finally {
      linked.abort(callOver);
    }
  }
}
