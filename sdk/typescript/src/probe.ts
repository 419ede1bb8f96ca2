import * as net from "node:net";
import * as tls from "node:tls";
import type { Credentials } from "./credentials.js";
import type { SocketAddress } from "./transport.js";

/** How long a server may take to answer. */
const timeoutMs = 5_000;
const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const emptySettings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
/** Where a frame has its type, and the types with which a server may begin. */
const typeAt = 3;
const settings = 4;
const goAway = 7;
/** The type of the record that ends a handshake of TLS. */
const alert = 21;

/**
 * Finds out why gRPC could not be spoken over a connection that was lost: it makes others, sends
 * what gRPC sends first, and judges the first bytes of the answer. Resolves with why no attempt
 * will succeed, or undefined if another may. No token is sent.
 */
export async function probe(address: SocketAddress, credentials: Credentials): Promise<string | undefined> {
  const locked = address.kind === "tcp" && address.tls;
  const plain = address.kind === "tcp" && !address.tls;
  const answer = await greet(locked ? dialLocked(address, credentials.tlsOptions()) : dial(address));
  if (answer.length === emptySettings.length && [settings, goAway].includes(answer[typeAt] ?? 0)) {
    return undefined; // it speaks HTTP/2, and the connection was lost
  }
  if (answer.length > 0 || (plain && (await speaksTls(address)))) {
    return notGrpc(address);
  }
  if (locked) {
    const first = (await greet(dial(address)))[0];
    if (first !== undefined && first !== alert) {
      return "what listens there does not speak TLS: if it is on this host, use grpc://";
    }
  }
  return undefined;
}

/** What is said of a server that answers, but not as gRPC does. */
export function notGrpc(address: SocketAddress): string {
  const hint = address.kind === "tcp" && !address.tls ? ", or only with TLS (grpcs://)" : "";
  return `something listens there, but it does not speak gRPC${hint}`;
}

function dial(address: SocketAddress): net.Socket {
  return address.kind === "unix" ? net.connect({ path: address.path }) : net.connect({ host: address.host, port: address.port });
}

function dialLocked({ host, port }: { host: string; port: number }, options: tls.ConnectionOptions): net.Socket {
  return tls.connect({ host, port, ALPNProtocols: ["h2"], minVersion: "TLSv1.3", ...(net.isIP(host) === 0 && { servername: host }), ...options });
}

/** Resolves with the first bytes of the answer, at most the header of a frame. */
function greet(socket: net.Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    let answer = Buffer.alloc(0);
    const end = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(answer.subarray(0, emptySettings.length));
    };
    const timer = setTimeout(end, timeoutMs);
    socket.on("data", (data: Buffer) => {
      answer = Buffer.concat([answer, data]);
      if (answer.length >= emptySettings.length) {
        end();
      }
    });
    socket.on("error", end).on("end", end).on("close", end);
    socket.write(Buffer.concat([preface, emptySettings]));
  });
}

/** Whether a server that is to speak without TLS answers the beginning of a handshake. */
function speaksTls({ host, port }: { host: string; port: number }): Promise<boolean> {
  return new Promise((resolve) => {
    // No certificate is judged, because nothing is sent.
    const socket = tls.connect({ host, port, rejectUnauthorized: false });
    const end = (speaks: boolean): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(speaks);
    };
    const timer = setTimeout(() => end(false), timeoutMs);
    socket.on("secureConnect", () => end(true)).on("close", () => end(false));
    socket.on("error", (error: NodeJS.ErrnoException) => end((error.code ?? "").includes("ALERT")));
  });
}
