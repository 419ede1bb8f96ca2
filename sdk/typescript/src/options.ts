import type { TlsFiles } from "./credentials.js";

/** Options of {@link connect}. */
export interface ConnectOptions {
  /** The token. Give this or `tokenFile`. */
  readonly token?: string;
  /** A file with the token, which only the user may be able to read. It is read again when it changes. */
  readonly tokenFile?: string;
  /** Files for tls:// and relay+wss://. */
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
  /**
   * In a browser, how many connections it makes to the server at once: 6 by default, as over HTTP/1.1. Each stream (an
   * owned process, a watch, a download) uses one, and two are left to other calls. Give more, such as 100, if a proxy
   * speaks HTTP/2 with the browser.
   */
  readonly connections?: number;
}
