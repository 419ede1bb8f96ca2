import { parseAddress, relayUrl, redact, type SocketAddress } from "./address.js";
import { Client, type Shared } from "./client.js";
import { Credentials, type TlsFiles } from "./credentials.js";
import { ConnectionError, ExecwireError, messageOf, UsageError } from "./errors.js";
import { Helper } from "./helper.js";
import { assumedGraceMs, Backoff, graceMarginMs } from "./retry.js";
import { Rpc } from "./rpc.js";
import { requireLoopback, Connection } from "./transport.js";

/** Options of {@link connect}. */
export interface ConnectOptions {
  /**
   * The token, or a file with it that only the user may be able to read, and that is read again when it
   * changes.
   */
  readonly token?: string;
  readonly tokenFile?: string;
  /** Files for grpcs:// and relay+wss://. */
  readonly tls?: TlsFiles;
  /** Cancels connecting. */
  readonly signal?: AbortSignal;
  /** How long to retry connections that are lost or not answered, in milliseconds: 30,000 by default. */
  readonly timeoutMs?: number;
  /**
   * How long lost connections are resumed, in milliseconds: 75,000 by default. A process with a grace period
   * is resumed for at least that.
   */
  readonly resumeForMs?: number;
  /** How much output of one process may be buffered for its reader, in bytes: 4 MiB by default. */
  readonly maxBufferedBytes?: number;
  /** The execwire program, for local: and relay+wss://. Absent is $EXECWIRE_BIN, else that in PATH. */
  readonly binary?: string;
  /** An executor of a hub: the URL is then that of the hub, https://HOST, instead of a relay. */
  readonly executor?: string;
}

const defaultMaxBufferedBytes = 4 << 20;

/**
 * Connects to the server at a URL: grpc://HOST:PORT, grpcs://HOST:PORT with TLS, unix:///PATH,
 * relay+wss://HOST/executor/ID?role=harness through a relay, or local: (or an empty one) for a private server
 * on this machine. Resolves when the server has answered. A refused connection, a rejection and an answer
 * that is not gRPC reject at once; a connection lost before the server has answered is retried until
 * `timeoutMs`. One lost later is re-established when needed.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  const dialed = options.executor === undefined ? url : relayUrl(url, options.executor);
  const address = parseAddress(dialed);
  const { token, tokenFile, tls = {}, signal, binary } = options;
  let helper: Helper | undefined;
  let socket: SocketAddress;
  let credentials: Credentials;
  if (address.kind === "relay") {
    if (token !== undefined) {
      throw new UsageError("a relay requires tokenFile instead of token");
    }
    credentials = new Credentials(undefined, undefined, {});
    const flags: [string, string | undefined][] = [
      ["--token-file", tokenFile],
      ["--tls-ca", tls.ca],
      ["--tls-cert", tls.certificate],
      ["--tls-key", tls.key],
    ];
    const given = flags.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
    helper = await Helper.start(
      redact(dialed),
      binary,
      (listen) => ["forward", "--server", dialed, "--listen", listen, "--until-stdin-closes", ...given],
      signal,
    );
    socket = { kind: "unix", path: helper.socket };
  } else if (address.kind === "local") {
    return launch(options);
  } else {
    credentials = new Credentials(token, tokenFile, tls);
    requireLoopback(address, credentials);
    socket = address;
  }
  return open(dialed, socket, credentials, helper, options);
}

/**
 * Launches a private server on this machine and connects to it. It ends with the client, and its processes
 * with it.
 */
export async function launch(options: Omit<ConnectOptions, "token" | "tokenFile" | "tls" | "executor"> & { readonly args?: readonly string[] } = {}): Promise<Client> {
  const helper = await Helper.start("local:", options.binary, (listen) => ["serve", "--listen", listen, "--until-stdin-closes", ...(options.args ?? [])], options.signal);
  return open("local:", { kind: "unix", path: helper.socket }, new Credentials(undefined, undefined, {}), helper, options);
}

async function open(
  url: string,
  socket: SocketAddress,
  credentials: Credentials,
  helper: Helper | undefined,
  options: ConnectOptions,
): Promise<Client> {
  const connection = new Connection(socket, credentials);
  const rpc = new Rpc(connection.transport, options.resumeForMs ?? assumedGraceMs + graceMarginMs);
  connection.onLost = () => rpc.lost();
  void helper?.ended.then((how) => rpc.fail(new ConnectionError(redact(url), new Error(how))));
  const shared: Shared = {
    rpc,
    maxBufferedBytes: options.maxBufferedBytes ?? defaultMaxBufferedBytes,
    close: async () => {
      rpc.close();
      await rpc.ended(); // they drop their data on the server, over the connection
      connection.close();
      await helper?.close();
    },
  };
  try {
    await waitForAnswer(rpc, connection, options.timeoutMs ?? defaultTimeoutMs, options.signal);
  } catch (error) {
    await shared.close();
    const answered = error instanceof ExecwireError && error.fromServer;
    if (answered || options.signal?.aborted) {
      throw error;
    }
    throw new ConnectionError(redact(url), error instanceof KnownReason ? error : connection.explain(error));
  }
  return new Client(shared, undefined);
}

const defaultTimeoutMs = 30_000;

/**
 * Resolves when the server has answered. A missing permission counts as an answer, failed authentication as a
 * rejection. A connection lost before is retried.
 */
async function waitForAnswer(rpc: Rpc, connection: Connection, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
  const backoff = new Backoff();
  const over = AbortSignal.timeout(timeoutMs);
  const either = signal === undefined ? over : AbortSignal.any([signal, over]);
  let lost: unknown;
  for (;;) {
    try {
      await rpc.call((call) => rpc.stubs.environment.getEnvironment({}, call), either);
      return;
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      if (over.aborted) {
        throw new KnownReason(`${lost === undefined ? "no answer" : messageOf(lost)} after ${timeoutMs / 1000} s`, { cause: lost });
      }
      const answered = error instanceof ExecwireError && error.fromServer;
      if (answered && error.reason !== "UNAUTHENTICATED") {
        return;
      }
      // A refused connection after a lost one: the server is restarting.
      if (answered || !(connection.wasLost || (connection.wasRefused && lost !== undefined))) {
        throw error;
      }
      lost = error;
      const why = connection.wasLost ? await connection.probe() : undefined;
      if (why !== undefined) {
        throw new KnownReason(why, { cause: error });
      }
    }
    await backoff.wait(0, either).catch(() => undefined); // the next call throws the reason
  }
}

/** A known reason why a server could not be reached. */
class KnownReason extends Error {}
