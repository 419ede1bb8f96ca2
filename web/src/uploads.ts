import { serverPath } from "./session.js";

/** How much is sent in one request: a lost connection repeats no more than this. */
const partBytes = 8 << 20;
/** How long a lost connection is tried again. */
const patienceMs = 10 * 60_000;

/** Returns the address at which the server has a file. */
export function fileUrl(path: string): string {
  return `${serverPath}/v1/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** Asks the server how much of an upload it has. */
async function received(url: string, signal: AbortSignal): Promise<number> {
  const answer = await fetch(url, { method: "HEAD", signal });
  return answer.ok ? Number(answer.headers.get("Upload-Offset") ?? 0) : 0;
}

/**
 * Uploads a file in parts. After a lost connection it goes on with what the server has not received. The file
 * appears when it is complete.
 */
export async function upload(path: string, file: Blob, progress: (bytes: number) => void, signal: AbortSignal): Promise<void> {
  const id = [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(16)).join("");
  const url = `${fileUrl(path)}?upload_id=${id}`;
  let offset = 0;
  let lostAt: number | undefined;
  do {
    const end = Math.min(file.size, offset + partBytes);
    const range: Record<string, string> = file.size === 0 ? {} : { "Content-Range": `bytes ${offset}-${end - 1}/${file.size}` };
    try {
      const answer = await fetch(url, { method: "PUT", body: file.slice(offset, end), headers: range, signal });
      if (!answer.ok) {
        const { message = answer.statusText } = (await answer.json().catch(() => ({}))) as { message?: string };
        throw Object.assign(new Error(message), { refused: answer.status !== 503 });
      }
      offset = answer.status === 202 ? Number(answer.headers.get("Upload-Offset") ?? end) : file.size;
      lostAt = undefined;
    } catch (error) {
      signal.throwIfAborted();
      lostAt ??= Date.now();
      if ((error as { refused?: boolean }).refused === true || Date.now() - lostAt > patienceMs) {
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      offset = await received(url, signal).catch(() => offset);
    }
    progress(offset);
  } while (offset < file.size);
}
