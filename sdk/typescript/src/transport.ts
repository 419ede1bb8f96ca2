import { type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, type GrpcTransportOptions, Http2SessionManager } from "@connectrpc/connect-node";
import type { SocketAddress } from "./address.js";
import type { Credentials } from "./credentials.js";
import { CredentialError, messageOf } from "./errors.js";
import { authorize, baseUrl, type Link, lostConnection, maxMessageBytes, unsent } from "./link.js";
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

/** Error codes of a lost connection, or of a full accept queue. */
export const losses = ["ECONNRESET", "ECONNABORTED", "EPIPE", "EAGAIN"];

/** The server closed the connection in order. */
class ClosedByPeer extends Error {}

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** The HTTP/2 connection to a server that is called by gRPC. */
export class Connection implements Link, SessionManager {
  readonly authority: string;
  readonly origin: string;
  readonly bidirectionalUrl = "";
  readonly transport: Transport;
  private readonly manager: Http2SessionManager;
  /** The open streams of each socket, and of its session. */
  private readonly sockets = new Map<net.Socket, Set<ClientHttp2Stream>>();
  private readonly sessions = new WeakMap<object, Set<ClientHttp2Stream>>();
  private newest: Set<ClientHttp2Stream> | undefined;
  onLost: (() => void) | undefined;
  private lastError: unknown;
  private closed = false;

  constructor(private readonly address: SocketAddress, private readonly credentials: Credentials) {
    const url = address.kind === "unix" ? "http://localhost" : baseUrl(address);
    this.authority = new URL(url).origin;
    this.origin = address.kind === "unix" ? "" : this.authority;
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
      interceptors: [authorize(() => credentials.token())],
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
    const stream = await this.manager.request(method, path, headers, options).catch((error: unknown) => {
      throw unsent(error);
    });
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

  get wasLost(): boolean {
    const { lastError } = this;
    const code = lastError instanceof Error ? ((lastError as NodeJS.ErrnoException).code ?? "") : "";
    return lastError instanceof ClosedByPeer || lastError instanceof ConnectError || losses.includes(code);
  }

  probe(): Promise<string | undefined> {
    return probe(this.address, this.credentials);
  }

  get wasRefused(): boolean {
    return (this.lastError as NodeJS.ErrnoException | undefined)?.code === "ECONNREFUSED";
  }

  explain(error: unknown): unknown {
    return explainSocket(this.lastError) ?? this.notGrpc(this.lastError instanceof Error ? this.lastError : error);
  }

  private notGrpc(cause: unknown): Error {
    return new Error(`${messageOf(cause)}: ${notGrpc(this.address)}`, { cause });
  }

  close(): void {
    this.closed = true;
    this.manager.abort(new ConnectError("the connection was closed", Code.Canceled));
    for (const socket of this.sockets.keys()) {
      socket.destroy();
    }
  }

  private open(): net.Socket {
    this.lastError = undefined;
    const socket = dial(this.address, this.credentials, "h2");
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
      const error = lostConnection(cause);
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
}

/** Dials a server, for a protocol as named in ALPN. */
export function dial(address: SocketAddress, credentials: Credentials, protocol: string): net.Socket {
  if (address.kind === "unix") {
    return net.connect({ path: address.path });
  }
  const { host, port } = address;
  if (address.tls) {
    return tls.connect({
      host,
      port,
      ALPNProtocols: [protocol],
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

/** What the error of a socket means; undefined if it may mean that the server speaks another protocol. */
export function explainSocket(error: unknown): Error | undefined {
  if (error instanceof CredentialError) {
    return error;
  }
  if (!(error instanceof Error)) {
    return undefined;
  }
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (/CERT|ISSUER|SIGNED|ALTNAME/.test(code)) {
    return new Error(`${error.message}: add the authority that signed the server's certificate to tls.ca, and connect by a name in the certificate`, { cause: error });
  }
  if (code === "EPROTO" || /SSL/.test(code)) {
    return new Error(`${error.message}: execwire needs TLS 1.3 at both ends, and a certificate that the server accepts`, { cause: error });
  }
  return /^E[A-Z]+$/.test(code) && code !== "ECONNRESET" ? error : undefined;
}

/** Throws if a token would be sent in plain text to another host. */
export function requireLoopback(address: SocketAddress, credentials: Credentials): void {
  if (address.kind === "tcp" && !address.tls && credentials.hasToken && net.isIP(address.host) !== 0 && !isLoopback(address.host)) {
    throw plainText();
  }
}

function plainText(): CredentialError {
  return new CredentialError("a token would be sent in plain text to another host: use tls://, or a tunnel to this host");
}

function isLoopback(ip: string): boolean {
  return ip === "::1" || /^(::ffff:)?127\./.test(ip);
}
