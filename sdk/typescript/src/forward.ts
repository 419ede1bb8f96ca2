import * as net from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ClosedError, ProtocolError, UsageError, messageOf } from "./errors.js";
import { type ConnectPortRequestSchema, PortService } from "./gen/execwire/v1/port_pb.js";
import type { Server } from "./node-types.js";
import type { Rpc } from "./rpc.js";
import { fromRpc } from "./status.js";
import { abortable, LinkedSignal, onAbort } from "./time.js";

/** Slightly less than 32 KiB, a buffer size of gRPC. */
const pieceBytes = 32_700;

/** Options of {@link Client.forward}. */
export interface ForwardOptions {
  /** The session whose processes listen; absent is the default session. */
  readonly sessionId?: string;
  /** A name or an address in the server's network; absent is the server's loopback. */
  readonly host?: string;
  /** The address to listen on; absent is 127.0.0.1. */
  readonly localAddress?: string;
  /** The port to listen on; absent or 0 is one that is free. */
  readonly localPort?: number;
  /** Called for each connection that fails, with its error. Absent ignores them. */
  readonly onError?: (error: unknown) => void;
}

/** A listener of this machine whose connections are forwarded to a port of the server. */
export class Forward implements AsyncDisposable {
  private readonly closing = new AbortController();
  private readonly passing = new Set<Promise<void>>();
  private readonly closed: Promise<void>;
  private readonly bound: net.AddressInfo;
  private readonly forget: () => void;

  /** @internal */
  constructor(
    private readonly rpc: Rpc,
    private readonly server: Server,
    private readonly connect: { sessionId: string; host: string; port: number },
    private readonly onError: ((error: unknown) => void) | undefined,
  ) {
    this.bound = server.address() as net.AddressInfo;
    this.closed = new Promise((resolve) => server.once("close", resolve));
    server.on("connection", (socket) => {
      const passing = this.pass(socket).finally(() => this.passing.delete(passing));
      this.passing.add(passing);
    });
    server.on("error", (error) => this.onError?.(error)); // it cannot accept a connection
    this.forget = onAbort(rpc.lifetime, this.end);
  }

  /** Where it listens. */
  get address(): string {
    return this.bound.address;
  }

  /** The port on which it listens. */
  get port(): number {
    return this.bound.port;
  }

  /** Stops listening, resets the connections, and waits until they have ended. Closing twice is not an error. */
  async close(): Promise<void> {
    this.end();
    await this.closed;
    await Promise.allSettled(this.passing);
  }

  /** Closes it, at the end of an `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private readonly end = (): void => {
    this.forget();
    this.server.close();
    this.closing.abort(new ClosedError("the forward was closed"));
  };

  /**
   * Passes bytes until both directions have ended in order. Everything else resets the connection, so that its
   * client gets an error instead of an end.
   */
  private async pass(socket: net.Socket): Promise<void> {
    const call = new LinkedSignal(this.rpc.lifetime, this.closing.signal);
    socket.once("error", (error) => call.abort(error)); // its client has broken it off
    try {
      const responses = await this.rpc.transport.stream(PortService.method.connectPort, call.signal, undefined, undefined, this.requests(socket));
      let ended = false;
      for await (const { message } of responses.message) {
        if (message.case === "data" && !socket.write(message.value)) {
          await abortable(new Promise((resolve) => socket.once("drain", resolve)), call.signal);
        } else if (message.case === "end") {
          ended = true;
          // Behind everything else, so that nothing is left to write when the end is.
          await abortable(new Promise((resolve) => socket.write("", resolve)), call.signal);
          socket.end();
        }
      }
      if (!ended) {
        throw new ProtocolError("the stream of a connection ended before its end message");
      }
      if (!socket.writableFinished) {
        await abortable(new Promise((resolve) => socket.once("finish", resolve)), call.signal);
      }
    } catch (error) {
      const reported = !call.signal.aborted;
      // libuv does not reset a socket while it writes the end, and Node.js does not close it then either: its
      // client would wait without end, and so would the end of this program.
      if (!socket.writableEnded || socket.writableFinished) {
        socket.resetAndDestroy();
      }
      if (reported) {
        this.onError?.(fromRpc(error));
      }
    } finally {
      call.abort(new ClosedError("the connection is over"));
      socket.destroy();
    }
  }

  private async *requests(socket: net.Socket): AsyncGenerator<MessageInitShape<typeof ConnectPortRequestSchema>> {
    yield { message: { case: "connect", value: this.connect } };
    // The other direction may continue after the end of this one.
    for await (const data of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>) {
      for (let at = 0; at < data.length; at += pieceBytes) {
        yield { message: { case: "data", value: data.subarray(at, at + pieceBytes) } };
      }
    }
  }
}

/** Listens, and forwards the connections to a port. */
export async function forward(rpc: Rpc, port: number, options: ForwardOptions): Promise<Forward> {
  const { origin, bidirectionalUrl } = rpc.link;
  if (bidirectionalUrl !== "") {
    throw new UsageError(`a connection by ${origin} cannot forward ports, which needs streams in both directions: connect by ${bidirectionalUrl}`);
  }
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    throw new UsageError(`port ${port} is not a port: use 1 to 65535`);
  }
  rpc.lifetime.throwIfAborted();
  const { localAddress = "127.0.0.1", localPort = 0, sessionId = "", host = "" } = options;
  const server = net.createServer({ allowHalfOpen: true, noDelay: true });
  await new Promise<void>((resolve, reject) => {
    const failed = (error: Error): void => reject(new UsageError(`failed to listen on ${localAddress}:${localPort}: ${messageOf(error)}`, { cause: error }));
    server.once("error", failed);
    server.listen(localPort, localAddress, () => {
      server.off("error", failed);
      resolve();
    });
  });
  return new Forward(rpc, server, { sessionId, host, port }, options.onError);
}
