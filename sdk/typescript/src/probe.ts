import * as net from "node:net";
import * as tls from "node:tls";
import type { SocketAddress } from "./address.js";
import type { Credentials } from "./credentials.js";

/** How long a server may take to answer. */
const timeoutMs = 5_000;
const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
const emptySettings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
/** The offset of the type in a frame, and the types with which a server may begin. */
const typeAt = 3;
const settings = 4;
const goAway = 7;
/** The TLS record type alert. */
const alert = 21;

/**
 * Finds out why gRPC failed over a lost connection: it connects again, sends the HTTP/2 preface, and examines
 * the first bytes of the answer. Resolves with the reason why no attempt can succeed, or undefined if another
 * may. No token is sent.
 */
export async function probe(address: SocketAddress, credentials: Credentials): Promise<string | undefined> {
  const secure = address.kind === "tcp" && address.tls;
  const plain = address.kind === "tcp" && !address.tls;
  const answer = await sendPreface(secure ? dialTls(address, credentials.tlsOptions()) : dial(address));
  if (answer.length === emptySettings.length && [settings, goAway].includes(answer[typeAt] ?? 0)) {
    return undefined; // it speaks HTTP/2, and the connection was lost
  }
  if (answer.length > 0 || (plain && (await speaksTls(address)))) {
    return notGrpc(address);
  }
  if (secure) {
    const first = (await sendPreface(dial(address)))[0];
    if (first !== undefined && first !== alert) {
      return "the server does not use TLS: if it is on this host, use tcp://";
    }
  }
  return undefined;
}

/** The message for a server that answers, but does not speak gRPC. */
export function notGrpc(address: SocketAddress): string {
  const hint = address.kind === "tcp" && !address.tls ? ", or only with TLS (tls://)" : "";
  return `the server does not speak gRPC${hint}`;
}

function dial(address: SocketAddress): net.Socket {
  return address.kind === "unix" ? net.connect({ path: address.path }) : net.connect({ host: address.host, port: address.port });
}

function dialTls({ host, port }: { host: string; port: number }, options: tls.ConnectionOptions): net.Socket {
  return tls.connect({ host, port, ALPNProtocols: ["h2"], minVersion: "TLSv1.3", ...(net.isIP(host) === 0 && { servername: host }), ...options });
}

/** Resolves with the first bytes of the answer, at most a frame header. */
function sendPreface(socket: net.Socket): Promise<Buffer> {
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

/** Whether a server that should not use TLS answers a TLS handshake. */
function speaksTls({ host, port }: { host: string; port: number }): Promise<boolean> {
  return new Promise((resolve) => {
    // The certificate is not verified, because no data is sent.
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
