import { UsageError } from "./errors.js";

/** A host and a port, and whether the server there is called by the Connect protocol over HTTP/1.1 instead of gRPC. */
export interface TcpAddress {
  readonly kind: "tcp";
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly http: boolean;
  /** Where the server is at its host, as a proxy has it, without a slash at the end; "" unless it is called over HTTP/1.1. */
  readonly path: string;
}

/** The address of a server and its protocol. */
export type Address =
  | TcpAddress
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "relay" }
  | { readonly kind: "local" };

/** An address that this process dials with a socket of its own. */
export type SocketAddress = Extract<Address, { kind: "tcp" | "unix" }>;

const urlSyntax =
  "write it as tcp://HOST:PORT, tls://HOST:PORT, http://HOST:PORT[/PATH], https://HOST[:PORT][/PATH], unix:///PATH, relay+wss://HOST/executor/ID?role=harness or local:";

/** Parses the URL of a server. */
export function parseAddress(url: string): Address {
  if (url === "" || url === "local:") {
    return { kind: "local" };
  }
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw bad(url, urlSyntax);
  }
  const { protocol, hostname, port, pathname } = parsed;
  switch (protocol) {
    case "tcp:":
    case "tls:":
    case "grpc:":
    case "grpcs:":
    case "http:":
    case "https:": {
      const http = protocol.startsWith("http");
      const shape = `${protocol}//HOST:PORT${http ? "[/PATH]" : ""}`;
      const path = pathname.replace(/\/+$/, "");
      if (hostname === "" || (port === "" && !http)) {
        throw bad(url, `host and port are required: ${shape}`);
      }
      if ((path !== "" && !http) || parsed.search !== "" || parsed.username !== "" || parsed.password !== "") {
        throw bad(url, `nothing ${http ? "else may" : "may"} follow or precede host and port: ${shape}`);
      }
      const tls = ["tls:", "grpcs:", "https:"].includes(protocol);
      return { kind: "tcp", host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || (tls ? 443 : 80)), tls, http, path };
    }
    case "unix:":
      if (hostname !== "" || !pathname.startsWith("/")) {
        throw bad(url, "the path must be absolute: unix:///PATH");
      }
      return { kind: "unix", path: decodeURIComponent(pathname) };
    case "relay+ws:":
    case "relay+wss:":
      return { kind: "relay" };
    case "ws:":
    case "wss:":
    case "stdio:":
      throw bad(url, `this package supports only gRPC, not ${protocol}; ${urlSyntax}`);
    default:
      throw bad(url, urlSyntax);
  }
}

/** Returns the URL of an executor behind the hub at https://HOST or http://HOST. */
export function relayUrl(hub: string, executorId: string): string {
  let parsed: URL;
  try {
    parsed = new URL(hub);
  } catch {
    throw bad(hub, "write it as https://HOST");
  }
  if (parsed.protocol !== "https:" && parsed.protocol !== "http:") {
    throw bad(hub, "write it as https://HOST");
  }
  const scheme = parsed.protocol === "https:" ? "relay+wss" : "relay+ws";
  const prefix = parsed.pathname.replace(/\/+$/, "");
  return `${scheme}://${parsed.host}${prefix}/executor/${encodeURIComponent(executorId)}?role=harness`;
}

/** The URL without parts that may be secret. */
export function redact(url: string): string {
  return url.replace(/\?.*$/, "").replace(/\/\/[^/@]*@/, "//");
}

function bad(url: string, problem: string): UsageError {
  return new UsageError(`failed to parse server URL ${JSON.stringify(redact(url))}: ${problem}`);
}
