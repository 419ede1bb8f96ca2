import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { binary, dial, directory, pattern, serve } from "./fixture.js";

/** In a row; ten in make soak. */
const upgrades = "EXECWIRE_SOAK" in process.env ? 10 : 3;
/** What moves between two upgrades. The rest is on its way, or waits for a window. */
const part = 1 << 20;

const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

test("transfers go on through upgrades of the server", async (t) => {
  const { url } = await serve(t);
  const c = await dial(t, url);
  const dir = directory(t);
  const input = pattern((upgrades + 1) * part);
  let resumed = 0;
  await using p = await c.start(["tee", join(dir, "received")], { onResumed: () => resumed++ });
  const writing = (async () => {
    for (let at = 0; at < input.length; at += 65_536) {
      await p.write(input.subarray(at, at + 65_536));
    }
    await p.closeStdin();
  })();

  // Content that cannot be read again, of which each part is let go after an upgrade.
  const next: (() => void)[] = [];
  const released = Array.from({ length: upgrades + 1 }, (_, i) => new Promise<void>((resolve) => (next[i] = resolve)));
  const content = async function* (): AsyncGenerator<Uint8Array> {
    for (const [i, ready] of released.entries()) {
      await ready;
      for (let at = i * part; at < (i + 1) * part; at += 65_536) {
        yield input.subarray(at, at + 65_536);
      }
    }
  };
  const uploading = c.files.upload(join(dir, "uploaded"), content());

  const output = createHash("sha256");
  const events = p.events();
  let offset = 0;
  for (let i = 0; i <= upgrades; i++) {
    next[i]?.();
    while (offset < (i + 1) * part) {
      const { value: event } = await events.next();
      assert.ok(event?.type === "output", event?.type);
      assert.equal(event.offset, offset);
      output.update(event.data);
      offset += event.data.length;
    }
    if (i < upgrades) {
      await promisify(execFile)(binary, ["upgrade", "--server", url]);
    }
  }
  await writing;
  const rest: string[] = [];
  for await (const event of events) {
    rest.push(event.type);
  }
  assert.deepEqual(rest, ["exited", "closed"]);
  assert.equal((await p.wait()).code, 0);
  assert.equal(offset, input.length);
  assert.equal(output.digest("hex"), sha256(input));
  assert.ok(readFileSync(join(dir, "received")).equals(input));
  assert.ok(resumed >= 1, `${resumed} resumes`);
  assert.deepEqual(Buffer.from((await uploading).sha256).toString("hex"), sha256(input));
  assert.ok(readFileSync(join(dir, "uploaded")).equals(input));
});
