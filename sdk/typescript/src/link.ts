import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { CredentialError, messageOf } from "./errors.js";

export const maxMessageBytes = 16 << 20;

/** The connection to a server, or its connections, re-established when needed after a loss. */
export interface Link {
  readonly transport: Transport;
  /** The HTTP URL of the server, without a slash at the end; "" if it has none. */
  readonly origin: string;
  /** The URL by which calls that stream in both directions can be made; "" if they can be made here. */
  readonly bidirectionalUrl: string;
  /** Called when a connection is lost, after its streams have ended. */
  onLost: (() => void) | undefined;
  /** Whether the last connection was lost, or not established in time: the next may succeed. */
  readonly wasLost: boolean;
  /** Whether the last connection was refused. */
  readonly wasRefused: boolean;
  /** Finds out why the last connection was lost; undefined if the next may succeed. */
  probe(): Promise<string | undefined>;
  /** Why a first call failed: the error of the socket, if there is one. */
  explain(error: unknown): unknown;
  /** Closes the connection and ends its calls. It does not keep the process alive. */
  close(): void;
}

/** Shows the token to the server. */
export function authorize(token: () => string | undefined): Interceptor {
  return (next) => (request) => {
    const shown = token();
    if (shown !== undefined) {
      request.header.set("authorization", `Bearer ${shown}`);
    }
    return next(request);
  };
}

/** Translates the errors of calls, and of their streams. succeeded is called for every answer. */
export function translate(error: (thrown: unknown) => unknown, succeeded: () => void = () => undefined): Interceptor {
  async function* each<M>(messages: AsyncIterable<M>): AsyncIterable<M> {
    try {
      yield* messages;
    } catch (thrown) {
      throw error(thrown);
    }
  }
  return (next) => async (request) => {
    try {
      const response = await next(request);
      succeeded();
      return response.stream ? { ...response, message: each(response.message) } : response;
    } catch (thrown) {
      throw error(thrown);
    }
  };
}

/** Why a call was not sent: there was no connection. It is a cause, because a ConnectError is an instance of all its subclasses. */
class Unsent extends Error {}

/** The error of a call that was not sent. */
export function unsent(cause: unknown): ConnectError {
  const message = cause instanceof ConnectError ? cause.rawMessage : messageOf(cause);
  const code = cause instanceof ConnectError ? cause.code : Code.Unavailable;
  return new ConnectError(message, code, undefined, undefined, new Unsent(message, { cause }));
}

/** Whether a call failed with such an error. */
export function wasUnsent(error: Error): boolean {
  return error.cause instanceof ConnectError && error.cause.cause instanceof Unsent;
}

/** The error of a call whose connection was lost. */
export function lostConnection(cause: unknown): ConnectError {
  return new ConnectError(`the connection was lost: ${messageOf(cause)}`, Code.Unavailable, undefined, undefined, cause);
}

/** The URL of a server, with a scheme and a port. */
export function urlOf(scheme: string, { host, port }: { host: string; port: number }): string {
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** The HTTP URL of a server, without a slash at the end. */
export function baseUrl(address: { host: string; port: number; tls: boolean; path: string }): string {
  return urlOf(address.tls ? "https" : "http", address) + address.path;
}

/** Returns the token of a text from where. */
export function checkToken(text: string, where: string): string {
  const token = text.trim();
  if (!/^[!-~]+$/.test(token)) {
    throw new CredentialError(`${where} holds no token, or more than one: leave nothing but the token in it`);
  }
  return token;
}
