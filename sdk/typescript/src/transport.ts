import { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, type GrpcTransportOptions, Http2SessionManager } from "@connectrpc/connect-node";
import type { Address } from "./address.js";
import type { Credentials } from "./credentials.js";
import { CredentialError, messageOf } from "./errors.js";
import { notGrpc, probe } from "./probe.js";

/** A peer that is silent this long is asked whether it is there, and has pingTimeoutMs to answer. */
export const pingIntervalMs = 30_000;
export const pingTimeoutMs = 10_000;
/** How long an attempt to connect may take. */
const connectTimeoutMs = 10_000;
/**
 * What one stream may have on the way to a reader that does not read, and all of a connection:
 * so many stalled streams that the connection itself stalls are not to be expected.
 */
const streamWindowBytes = 1 << 20;
const connectionWindowBytes = 64 << 20;
/** What a session of Node.js may hold, in megabytes: more than its windows. */
const sessionMegabytes = 128;
const maxMessageBytes = 16 << 20;

/** What a socket says that was lost, or that the server had no room for yet. */
const losses = ["ECONNRESET", "ECONNABORTED", "EPIPE", "EAGAIN"];

/** The end of a connection that the server closed in order. */
class ClosedByPeer extends Error {}

/** An address that is dialed by sockets of this process. */
export type SocketAddress = Extract<Address, { kind: "tcp" | "unix" }>;

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** The HTTP/2 connection to a server, which is made again when it is needed after it was lost. */
export class Connection implements SessionManager {
  readonly authority: string;
  readonly transport: Transport;
  private readonly manager: Http2SessionManager;
  /** The open streams of each socket, and of the session that was made over it. */
  private readonly sockets = new Map<net.Socket, Set<ClientHttp2Stream>>();
  private readonly sessions = new WeakMap<object, Set<ClientHttp2Stream>>();
  private newest: Set<ClientHttp2Stream> | undefined;
  /** Called when a connection is lost, after its streams were told. */
  onLost: (() => void) | undefined;
  private lastError: unknown;
  private closed = false;

  constructor(private readonly address: SocketAddress, private readonly credentials: Credentials) {
    const url = address.kind === "unix" ? "http://localhost" : baseUrl(address);
    this.authority = new URL(url).origin;
    this.manager = new Http2SessionManager(
      url,
      { pingIntervalMs, pingTimeoutMs, idleConnectionTimeoutMs: 0x7fffffff },
      {
        createConnection: () => this.open(),
        maxSessionMemory: sessionMegabytes,
        settings: { initialWindowSize: streamWindowBytes, enablePush: false },
      },
    );
    this.transport = createGrpcTransport({
      baseUrl: url,
      sessionManager: this,
      interceptors: [this.authorize],
      readMaxBytes: maxMessageBytes,
      acceptCompression: [],
    });
  }

  /** Implements SessionManager. */
  async request(
    method: string,
    path: string,
    headers: OutgoingHttpHeaders,
    options: Parameters<Http2SessionManager["request"]>[3],
  ): Promise<ClientHttp2Stream> {
    if (this.closed) {
      throw new ConnectError("the connection was closed", Code.Canceled);
    }
    const stream = await this.manager.request(method, path, headers, options);
    const session = stream.session as ClientHttp2Session | undefined;
    if (session && this.newest) {
      if (!this.sessions.has(session)) {
        this.sessions.set(session, this.newest);
        session.on("error", () => undefined); // its streams are told, and nobody else asks
        session.setLocalWindowSize(connectionWindowBytes);
      }
      const open = this.sessions.get(session);
      open?.add(stream);
      stream.once("close", () => open?.delete(stream));
    }
    return stream;
  }

  /** Implements SessionManager. */
  notifyResponseByteRead(stream: ClientHttp2Stream): void {
    this.manager.notifyResponseByteRead(stream);
  }

  /** Whether the last connection was lost, or not made in time: the server may answer the next. */
  get wasLost(): boolean {
    const { lastError } = this;
    const code = lastError instanceof Error ? ((lastError as NodeJS.ErrnoException).code ?? "") : "";
    return lastError instanceof ClosedByPeer || lastError instanceof ConnectError || losses.includes(code);
  }

  /** Asks the server why the last connection was lost; undefined if another may not be. */
  probe(): Promise<string | undefined> {
    return probe(this.address, this.credentials);
  }

  /** Whether nobody listens at the address, at the last attempt. */
  get wasRefused(): boolean {
    return (this.lastError as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED";
  }

  /** Why a first call failed: what the socket said, where it said something. */
  explain(error: unknown): unknown {
    const { lastError } = this;
    if (lastError instanceof CredentialError) {
      return lastError;
    }
    if (!(lastError instanceof Error)) {
      return this.notGrpc(error);
    }
    const code = (lastError as NodeJS.ErrnoException).code ?? "";
    if (/CERT|ISSUER|SIGNED|ALTNAME/.test(code)) {
      return new Error(`${lastError.message}: name the authority that signed the server's certificate, if it is to be trusted, and reach the server by a name that it has`, { cause: lastError });
    }
    if (code === "EPROTO" || /SSL/.test(code)) {
      return new Error(`${lastError.message}: execwire needs TLS 1.3 at both ends, and a certificate that the server accepts`, { cause: lastError });
    }
    if (/^E[A-Z]+$/.test(code) && code !== "ECONNRESET") {
      return lastError;
    }
    return this.notGrpc(lastError);
  }

  private notGrpc(cause: unknown): Error {
    return new Error(`${messageOf(cause)}: ${notGrpc(this.address)}`, { cause });
  }

  /** Ends the connection, with all that goes on over it. Nothing of it keeps the process alive then. */
  close(): void {
    this.closed = true;
    this.manager.abort(new ConnectError("the connection was closed", Code.Canceled));
    for (const socket of this.sockets.keys()) {
      socket.destroy();
    }
  }

  private readonly authorize: Interceptor = (next) => (request) => {
    const token = this.credentials.token();
    if (token !== undefined) {
      request.header.set("authorization", `Bearer ${token}`);
    }
    return next(request);
  };

  private open(): net.Socket {
    this.lastError = undefined;
    const socket = this.dial();
    const timer = setTimeout(() => {
      socket.destroy(new ConnectError(`no answer to connecting within ${connectTimeoutMs / 1000} s`, Code.Unavailable));
    }, connectTimeoutMs);
    const ready = this.address.kind === "tcp" && this.address.tls ? "secureConnect" : "connect";
    socket.once(ready, () => clearTimeout(timer));
    const open = new Set<ClientHttp2Stream>();
    this.sockets.set(socket, open);
    this.newest = open;
    // Node.js ends the streams of a lost connection by codes that a server could have
    // sent too. Whoever resumes has to know which it was, so this comes before it.
    const lose = (cause: unknown): void => {
      this.lastError = cause;
      clearTimeout(timer);
      this.sockets.delete(socket);
      const error = new ConnectError(`the connection was lost: ${messageOf(cause)}`, Code.Unavailable);
      for (const stream of [...open]) {
        open.delete(stream);
        stream.destroy(error);
      }
      this.onLost?.();
    };
    socket.prependOnceListener("error", lose);
    socket.prependOnceListener("close", () => {
      if (this.sockets.has(socket)) {
        lose(new ClosedByPeer("the other end closed it"));
      }
    });
    return socket;
  }

  private dial(): net.Socket {
    const { address, credentials } = this;
    if (address.kind === "unix") {
      return net.connect({ path: address.path });
    }
    const { host, port } = address;
    if (address.tls) {
      return tls.connect({
        host,
        port,
        ALPNProtocols: ["h2"],
        minVersion: "TLSv1.3",
        ...(net.isIP(host) === 0 && { servername: host }),
        ...credentials.tlsOptions(),
      });
    }
    const socket = net.connect({ host, port, noDelay: true });
    if (credentials.hasToken) {
      socket.once("connect", () => {
        if (!isLoopback(socket.remoteAddress ?? "")) {
          socket.destroy(plainText());
        }
      });
    }
    return socket;
  }
}

/** Refuses at once what would send a token in plain text to another host. */
export function checkPrivate(address: SocketAddress, credentials: Credentials): void {
  if (address.kind === "tcp" && !address.tls && credentials.hasToken && net.isIP(address.host) !== 0 && !isLoopback(address.host)) {
    throw plainText();
  }
}

function plainText(): CredentialError {
  return new CredentialError("a token would be sent in plain text to another host: use grpcs://, or a tunnel to this host");
}

function isLoopback(ip: string): boolean {
  return ip === "::1" || /^(::ffff:)?127\./.test(ip);
}

function baseUrl({ host, port, tls: secure }: { host: string; port: number; tls: boolean }): string {
  const name = host.includes(":") ? `[${host}]` : host;
  return `${secure ? "https" : "http"}://${name}:${port}`;
}
