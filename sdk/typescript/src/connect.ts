import { platform } from "#platform";
import { redact, relayUrl } from "./address.js";
import { Client, type Shared } from "./client.js";
import { ConnectionError, ExecwireError, messageOf } from "./errors.js";
import type { Link } from "./link.js";
import type { ConnectOptions } from "./options.js";
import type { Opened } from "./platform.js";
import { assumedGraceMs, Backoff, graceMarginMs } from "./retry.js";
import { Rpc } from "./rpc.js";

const defaultMaxBufferedBytes = 4 << 20;

/**
 * Connects to the server at a URL: tcp://HOST:PORT, tls://HOST:PORT with TLS, unix:///PATH,
 * http://HOST:PORT and https://HOST:PORT, also with a path (the Connect protocol over HTTP/1.1, for proxies that know nothing else:
 * stubs of calls that stream in both directions fail with NOT_IMPLEMENTED),
 * relay+wss://HOST/executor/ID?role=harness through a relay, or local: (or an empty one) for a private server
 * on this machine. Resolves when the server has answered. A refused connection, a rejection and an answer
 * that is not gRPC reject at once; a connection lost before the server has answered is retried until
 * `timeoutMs`. One lost later is re-established when needed.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Client> {
  const dialed = options.executor === undefined ? url : relayUrl(url, options.executor);
  return connected(dialed, await platform.open(dialed, options), options);
}

/**
 * Launches a private server on this machine and connects to it. It ends with the client, and its processes
 * with it.
 */
export async function launch(options: Omit<ConnectOptions, "token" | "tokenFile" | "tls" | "executor"> & { readonly args?: readonly string[] } = {}): Promise<Client> {
  return connected("local:", await platform.open("local:", options), options);
}

async function connected(url: string, { link, helper }: Opened, options: ConnectOptions): Promise<Client> {
  const rpc = new Rpc(link, options.resumeForMs ?? assumedGraceMs + graceMarginMs);
  link.onLost = () => rpc.lost();
  void helper?.ended.then((how) => rpc.fail(new ConnectionError(redact(url), new Error(how))));
  const shared: Shared = {
    rpc,
    maxBufferedBytes: options.maxBufferedBytes ?? defaultMaxBufferedBytes,
    close: async () => {
      rpc.close();
      await rpc.ended(); // they drop their data on the server, over the connection
      link.close();
      await helper?.close();
    },
  };
  try {
    await waitForAnswer(rpc, link, options.timeoutMs ?? defaultTimeoutMs, options.signal);
  } catch (error) {
    await shared.close();
    const answered = error instanceof ExecwireError && error.fromServer;
    if (answered || options.signal?.aborted) {
      throw error;
    }
    throw new ConnectionError(redact(url), error instanceof KnownReason ? error : link.explain(error));
  }
  return new Client(shared, undefined);
}

const defaultTimeoutMs = 30_000;

/**
 * Resolves when the server has answered. A missing permission counts as an answer, failed authentication as a
 * rejection. A connection lost before is retried.
 */
async function waitForAnswer(rpc: Rpc, link: Link, timeoutMs: number, signal: AbortSignal | undefined): Promise<void> {
  const backoff = new Backoff();
  const over = AbortSignal.timeout(timeoutMs);
  const either = signal === undefined ? over : AbortSignal.any([signal, over]);
  let lost: unknown;
  for (;;) {
    try {
      const { limits } = await rpc.call((call) => rpc.stubs.environment.getEnvironment({}, call), either);
      rpc.limitUploads(Number(limits?.uploadsPerPrincipal ?? 0));
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
      if (answered || !(link.wasLost || (link.wasRefused && lost !== undefined))) {
        throw error;
      }
      lost = error;
      const why = link.wasLost ? await link.probe() : undefined;
      if (why !== undefined) {
        throw new KnownReason(why, { cause: error });
      }
    }
    await backoff.wait(0, either).catch(() => undefined); // the next call throws the reason
  }
}

/** A known reason why a server could not be reached. */
class KnownReason extends Error {}
