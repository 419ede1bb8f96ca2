import { sha256 as digestOf } from "@noble/hashes/sha2.js";
import type { BrowserLink } from "./browser-link.js";
import { bytesOf } from "./bytes.js";
import { type ErrorDetails, makeError, UsageError } from "./errors.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { displayPath, type Path } from "./paths.js";
import type { Rpc } from "./rpc.js";
import { LinkedSignal } from "./time.js";
import type { Content, Uploaded, UploadOptions } from "./upload.js";

/** The codes of errors of requests for files. */
const codes: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  409: "FAILED_PRECONDITION",
  412: "FAILED_PRECONDITION",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE",
  507: "RESOURCE_EXHAUSTED",
};

/**
 * Uploads by PUT, because browsers do not stream requests: the content is complete and verified before the file
 * appears. A lost connection is an error, after which the file may be the old one or the new one.
 */
export async function uploadByPut(rpc: Rpc, path: Path, content: Content, options: UploadOptions, sandbox: SandboxPolicy | undefined): Promise<Uploaded> {
  const { mode, modifyTime, ifMatchSha256, ifMissing, sync, onProgress } = options;
  if (typeof content !== "string" && !(content instanceof Uint8Array)) {
    throw new UsageError("a page in a browser uploads text and bytes: put a Blob to a URL of files.signUrl");
  }
  if (sandbox || mode !== undefined || modifyTime || ifMatchSha256 || sync || typeof path !== "string") {
    throw new UsageError("a page in a browser uploads without a sandbox, mode, modifyTime, ifMatchSha256 and sync, to a path in UTF-8");
  }
  // A browser would apply dots to the URL, and so lead to another file if there is a symbolic link before them.
  if (!path.startsWith("/") || /\/\.\.?(\/|$)/.test(path)) {
    throw new UsageError(`the path ${path} is not absolute, or has a segment . or ..: give it without`);
  }
  const { origin, token } = rpc.link as BrowserLink;
  const bytes = bytesOf(content);
  const sha256 = digestOf(bytes);
  const headers = new Headers({ "repr-digest": `sha-256=:${btoa(String.fromCharCode(...sha256))}:` });
  if (ifMissing) {
    headers.set("if-none-match", "*");
  }
  if (token !== undefined) {
    headers.set("authorization", `Bearer ${token}`);
  }
  const url = `${origin}/v1/files${path.split("/").map(encodeURIComponent).join("/")}`;
  const linked = new LinkedSignal(rpc.lifetime, options.signal);
  try {
    linked.signal.throwIfAborted();
    const response = await fetch(url, { method: "PUT", body: bytes, headers, signal: linked.signal, redirect: "error" });
    if (!response.ok) {
      throw await refused(response, path);
    }
    onProgress?.(bytes.length);
    return { size: bytes.length, sha256, metadata: undefined };
  } catch (error) {
    linked.signal.throwIfAborted();
    throw error instanceof TypeError ? makeError("UNAVAILABLE", `the connection was lost: ${error.message}`, undefined, error) : error;
  } finally {
    linked.dispose();
  }
}

async function refused(response: Response, path: Path): Promise<Error> {
  const { reason = "", message = response.statusText } = (await response.json().catch(() => ({}))) as { reason?: string; message?: string };
  const details: ErrorDetails = { reason, metadata: {}, fields: [], resource: displayPath(path), retryAfterMs: 0 };
  return makeError(codes[response.status] ?? "UNKNOWN", message, details);
}
