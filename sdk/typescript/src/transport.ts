import { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, type GrpcTransportOptions, Http2SessionManager } from "@connectrpc/connect-node";
import type { SocketAddress } from "./address.js";
import type { Credentials } from "./credentials.js";
import { CredentialError, messageOf } from "./errors.js";
import { notGrpc, probe } from "./probe.js";

/** Keepalive: a silent peer is pinged after this interval, and must answer within pingTimeoutMs. */
export const pingIntervalMs = 30_000;
export const pingTimeoutMs = 10_000;
/** Limits an attempt to connect. */
const connectTimeoutMs = 10_000;
/**
 * Flow-control windows of a stream and of a connection: so large that stalled streams are unlikely to stall
 * the connection.
 */
const streamWindowBytes = 1 << 20;
const connectionWindowBytes = 64 << 20;
/** The memory limit of a Node.js session, in megabytes: larger than its windows. */
const sessionMegabytes = 128;
const maxMessageBytes = 16 << 20;

/** Error codes of a lost connection, or of a full accept queue. */
const losses = ["ECONNRESET", "ECONNABORTED", "EPIPE", "EAGAIN"];

/** The server closed the connection in order. */
class ClosedByPeer extends Error {}

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** The HTTP/2 connection to a server, re-established when needed after a loss. */
export class Connection implements SessionManager {
  readonly authority: string;
  readonly transport: Transport;
  private readonly manager: Http2SessionManager;
  /** The open streams of each socket, and of its session. */
  private readonly sockets = new Map<net.Socket, Set<ClientHttp2Stream>>();
  private readonly sessions = new WeakMap<object, Set<ClientHttp2Stream>>();
  private newest: Set<ClientHttp2Stream> | undefined;
  /** Called when a connection is lost, after its streams have ended. */
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
        session.on("error", () => undefined); // its streams report the error
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

  /** Whether the last connection was lost, or not established in time: the next may succeed. */
  get wasLost(): boolean {
    const { lastError } = this;
    const code = lastError instanceof Error ? ((lastError as NodeJS.ErrnoException).code ?? "") : "";
    return lastError instanceof ClosedByPeer || lastError instanceof ConnectError || losses.includes(code);
  }

  /** Finds out why the last connection was lost; undefined if the next may succeed. */
  probe(): Promise<string | undefined> {
    return probe(this.address, this.credentials);
  }

  /** Whether the last connection was refused. */
  get wasRefused(): boolean {
    return (this.lastError as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED";
  }

  /** Why a first call failed: the error of the socket, if there is one. */
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
      return new Error(`${lastError.message}: add the authority that signed the server's certificate to tls.ca, and connect by a name in the certificate`, { cause: lastError });
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

  /** Closes the connection and ends its calls. It does not keep the process alive. */
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
    // Node.js ends the streams of a lost connection with codes that a server could have sent too. To resume,
    // the cause must be known, so this listener runs first.
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

/** Throws if a token would be sent in plain text to another host. */
export function requireLoopback(address: SocketAddress, credentials: Credentials): void {
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
