import * as http from "node:http";
import * as https from "node:https";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import type { TcpAddress } from "./address.js";
import type { Credentials } from "./credentials.js";
import { messageOf } from "./errors.js";
import { authorize, baseUrl, type Link, lostConnection, maxMessageBytes, translate, unsent, urlOf } from "./link.js";
import { dial, explainSocket, losses } from "./transport.js";

/** The HTTP/1.1 connections to a server that is called by the Connect protocol, one for each concurrent call. */
export class HttpLink implements Link {
  readonly transport: Transport;
  readonly origin: string;
  readonly bidirectionalUrl: string;
  /** Not called: the calls of a lost connection fail by themselves. */
  onLost: (() => void) | undefined;
  private readonly agent: http.Agent;
  /** The error of the last call, if it was one of its connection. */
  private lastError: NodeJS.ErrnoException | undefined;

  constructor(address: TcpAddress, credentials: Credentials) {
    this.origin = baseUrl(address);
    this.bidirectionalUrl = urlOf(address.tls ? "tls" : "tcp", address);
    this.agent = new (address.tls ? https : http).Agent({ keepAlive: true });
    this.agent.createConnection = () => dial(address, credentials, "http/1.1");
    this.transport = createConnectTransport({
      baseUrl: this.origin,
      httpVersion: "1.1",
      nodeOptions: { agent: this.agent },
      interceptors: [translate((error) => this.restated(error), () => (this.lastError = undefined)), authorize(() => credentials.token())],
      readMaxBytes: maxMessageBytes,
      acceptCompression: [],
    });
  }

  get wasLost(): boolean {
    return losses.includes(this.lastError?.code ?? "");
  }

  get wasRefused(): boolean {
    return this.lastError?.code === "ECONNREFUSED";
  }

  probe(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  explain(error: unknown): unknown {
    return explainSocket(this.lastError) ?? new Error(`${messageOf(error)}: the server does not speak Connect`, { cause: error });
  }

  close(): void {
    this.agent.destroy();
  }

  /** Reports the errors of lost connections as UNAVAILABLE. */
  private restated(error: unknown): unknown {
    this.lastError = error instanceof ConnectError && error.cause instanceof Error ? error.cause : undefined;
    return this.wasLost ? lostConnection(this.lastError) : this.wasRefused ? unsent(this.lastError) : error;
  }
}
