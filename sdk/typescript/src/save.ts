import { open, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Downloaded } from "./download.js";

/**
 * Writes a download to a file of this machine, where it appears when it is complete, with a mode and a time if given.
 * Nobody else can read it before it has that mode.
 */
export async function save(
  pieces: AsyncGenerator<Uint8Array, Downloaded, undefined>,
  file: string,
  attributes?: { readonly mode: number; readonly modifyTime: Date },
): Promise<Downloaded> {
  const partial = join(dirname(file), `.execwire-${crypto.randomUUID()}`); // its length does not depend on the name
  try {
    const to = await open(partial, "wx", attributes ? 0o600 : 0o666);
    try {
      for (;;) {
        const piece = await pieces.next();
        if (piece.done) {
          if (attributes) {
            await to.chmod(attributes.mode);
            // Node.js cuts seconds to microseconds towards 0, and many fractions are stored as slightly less. It takes
            // a negative number for now.
            const { modifyTime } = attributes;
            const time = modifyTime.getTime() < 0 ? modifyTime : (modifyTime.getTime() + 0.0005) / 1000;
            await to.utimes(time, time);
          }
          await to.close();
          await rename(partial, file);
          return piece.value;
        }
        await to.writeFile(piece.value);
      }
    } finally {
      await to.close(); // twice is not an error
    }
  } catch (error) {
    await pieces.return(undefined as never).catch(() => undefined); // the first error is thrown
    await rm(partial, { force: true });
    throw error;
  }
}
