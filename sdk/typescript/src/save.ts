import { createWriteStream } from "node:fs";
import { chmod, rename, rm, utimes } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { finished } from "node:stream/promises";
import type { Downloaded } from "./download.js";

/** Writes a download to a file of this machine, where it appears when it is complete, with a mode and a time if given. */
export async function save(
  pieces: AsyncGenerator<Uint8Array, Downloaded, undefined>,
  file: string,
  attributes?: { readonly mode: number; readonly modifyTime: Date },
): Promise<Downloaded> {
  const partial = join(dirname(file), `.${basename(file)}.${crypto.randomUUID()}`);
  const to = createWriteStream(partial, { flags: "wx" });
  const closed = finished(to);
  closed.catch(() => undefined);
  try {
    for (;;) {
      const piece = await pieces.next();
      if (piece.done) {
        to.end();
        await closed;
        if (attributes) {
          await chmod(partial, attributes.mode);
          await utimes(partial, attributes.modifyTime, attributes.modifyTime);
        }
        await rename(partial, file);
        return piece.value;
      }
      if (!to.write(piece.value)) {
        await Promise.race([new Promise<void>((resolve) => to.once("drain", () => resolve())), closed]);
      }
    }
  } catch (error) {
    await pieces.return(undefined as never).catch(() => undefined); // the first error is thrown
    to.destroy();
    await rm(partial, { force: true });
    throw error;
  }
}
