import { parseAddress, relayUrl, shown } from "./address.js";
import { Client, type Shared } from "./client.js";
import { Credentials, type TlsFiles } from "./credentials.js";
import { ConnectionError, ExecwireError, messageOf, UsageError } from "./errors.js";
import { Helper } from "./helper.js";
import { assumedGraceMs, Backoff, graceMarginMs } from "./retry.js";
import { Rpc } from "./rpc.js";
import { checkPrivate, Connection, type SocketAddress } from "./transport.js";

/** How a server is connected to. */
export interface ConnectOptions {
  /** The token to show, or a file with it that nobody else may read, which is read again when it changes. */
  readonly token?: string;
  readonly tokenFile?: string;
  /** Files for grpcs:// and relay+wss://. */
  readonly tls?: TlsFiles;
  /** Gives up connecting. */
  readonly signal?: AbortSignal;
  /** For how long connections are made that are lost or not answered, in milliseconds: 30,000 unless it says otherwise. */
  readonly timeoutMs?: number;
  /**
   * For how long lost connections are resumed, in milliseconds: 75,000 unless it says otherwise.
   * A process with a grace of its own is resumed for at least that.
   */
  readonly resumeForMs?: number;
  /** How much output of one process may wait in memory for whoever takes it, in bytes: 4 MiB unless it says otherwise. */
  readonly maxBufferedBytes?: number;
  /** The program execwire, for local: and relay+wss://. Absent is $EXECWIRE_BIN, else that in PATH. */
  readonly binary?: string;
  /** An executor of a hub, https://HOST: instead of the URL of a relay, its hub's URL with this. */
  readonly executor?: string;
}

const defaultMaxBufferedBytes = 4 << 20;

/**
 * Connects to the server at a URL: grpc://HOST:PORT, grpcs://HOST:PORT with TLS, unix:///PATH,
 * relay+wss://HOST/executor/ID?role=harness through a relay, or local: (or an empty one) for a
 * server of this client's own on this machine. Resolves when the server has answered. Nothing
 * that listens, a refusal and an answer that is not gRPC reject at once; a connection that is
 * lost before the server has answered is made again until `timeoutMs`. One that is lost later
 * is made again when it is needed.
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
      throw new UsageError("a relay is shown the token in a file: give tokenFile instead of token");
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
      shown(dialed),
      binary,
      (listen) => ["forward", "--server", dialed, "--listen", listen, "--until-stdin-closes", ...given],
      signal,
    );
    socket = { kind: "unix", path: helper.socket };
  } else if (address.kind === "local") {
    return launch(options);
  } else {
    credentials = new Credentials(token, tokenFile, tls);
    checkPrivate(address, credentials);
    socket = address;
  }
  return open(dialed, socket, credentials, helper, options);
}

/**
 * Starts a server of this client's own on this machine, which only it can reach, and connects to
 * it. It ends with the client, and its processes with it.
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
  void helper?.ended.then((how) => rpc.fail(new ConnectionError(shown(url), new Error(how))));
  const shared: Shared = {
    rpc,
    maxBufferedBytes: options.maxBufferedBytes ?? defaultMaxBufferedBytes,
    close: async () => {
      rpc.close();
      await rpc.ended(); // they drop what the server has of them, over the connection
      connection.close();
      await helper?.close();
    },
  };
  try {
    await greet(rpc, connection, options.timeoutMs ?? defaultTimeoutMs, options.signal);
  } catch (error) {
    await shared.close();
    const answered = error instanceof ExecwireError && error.fromServer;
    if (answered || options.signal?.aborted) {
      throw error;
    }
    throw new ConnectionError(shown(url), error instanceof Conclusion ? error : connection.explain(error));
  }
  return new Client(shared, undefined);
}

const defaultTimeoutMs = 30_000;

/**
 * Resolves when the server has answered. That it lets the caller do nothing is an answer; that it
 * does not know it is a refusal. A connection that is lost before is made again.
 */
async function greet(rpc: Rpc, connection: Connection, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
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
        throw new Conclusion(`${lost === undefined ? "no answer" : messageOf(lost)} after ${timeoutMs / 1000} s`, { cause: lost });
      }
      const answered = error instanceof ExecwireError && error.fromServer;
      if (answered && error.reason !== "UNAUTHENTICATED") {
        return;
      }
      // A server that is gone after it was there is being started again.
      if (answered || !(connection.wasLost || (connection.wasRefused && lost !== undefined))) {
        throw error;
      }
      lost = error;
      const why = connection.wasLost ? await connection.probe() : undefined;
      if (why !== undefined) {
        throw new Conclusion(why, { cause: error });
      }
    }
    await backoff.wait(0, either).catch(() => undefined); // the next call says so
  }
}

/** Why a server could not be reached, where that is known without asking its socket. */
class Conclusion extends Error {}
