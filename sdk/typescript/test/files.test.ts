import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  AlreadyExistsError,
  ChangedError,
  type Client,
  ClosedError,
  ExecwireError,
  InvalidRequestError,
  IsDirectoryError,
  NotDirectoryError,
  PathExistsError,
  PathNotFoundError,
  ReadError,
  UsageError,
  type WatchEvent,
} from "execwire";
import { after, client, dial, directory, pattern, type Program, Proxy, serve, text, until } from "./fixture.js";

const sha256 = (data: Uint8Array): Buffer => createHash("sha256").update(data).digest();

test("files are written, read, described and removed", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  const path = join(dir, "a");
  const written = await files.write(path, "content\n", { mode: 0o640, modifyTime: new Date("2020-02-03T04:05:06.789Z") });
  assert.deepEqual([written.size, Buffer.from(written.sha256)], [8, sha256(Buffer.from("content\n"))]);
  assert.equal(await files.read(path, { text: true }), "content\n");
  assert.equal(text(await files.read(path, { offset: 3, length: 2 })), "te");
  const info = await files.stat(path, { sha256: true });
  assert.deepEqual([info.type, info.size, info.mode, info.isSymlink], ["file", 8, 0o640, false]);
  assert.equal(info.modifyTime?.toISOString(), "2020-02-03T04:05:06.789Z");
  assert.deepEqual(Buffer.from(info.sha256 ?? []), sha256(Buffer.from("content\n")));
  assert.equal(statSync(path).mode & 0o7777, 0o640);
  await files.chmod(path, 0o600);
  assert.equal(statSync(path).mode & 0o7777, 0o600);
  await assert.rejects(files.chmod(path, 0o10000), InvalidRequestError);
  await files.remove(path);
  await assert.rejects(files.chmod(path, 0o600), PathNotFoundError);
  assert.equal(await files.exists(path), false);
  await files.remove(path, { ignoreMissing: true });
});

test("errors about files are typed", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  writeFileSync(join(dir, "file"), "x");
  await assert.rejects(files.read(join(dir, "none")), (error: unknown) => {
    assert.ok(error instanceof PathNotFoundError);
    assert.deepEqual([error.reason, error.errno, error.resource], ["PATH_NOT_FOUND", "ENOENT", join(dir, "none")]);
    return true;
  });
  await assert.rejects(files.read(dir), IsDirectoryError);
  await assert.rejects(files.list(join(dir, "file")), NotDirectoryError);
  await assert.rejects(files.mkdir(dir), PathExistsError);
  await assert.rejects(files.write(join(dir, "file"), "y", { ifMissing: true }), AlreadyExistsError);
  await assert.rejects(files.write(join(dir, "file"), "y", { ifMatchSha256: sha256(Buffer.from("z")) }), ChangedError);
  await assert.rejects(files.remove(dir), (error: unknown) => error instanceof ExecwireError && error.reason === "DIRECTORY_NOT_EMPTY");
  await assert.rejects(files.stat(""), UsageError);
  assert.equal(readFileSync(join(dir, "file"), "utf8"), "x");
});

test("directories are made, listed, walked, copied, renamed and removed", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  await files.mkdir(join(dir, "a/b"), { parents: true });
  await files.mkdir(join(dir, "a/b"), { parents: true });
  await files.write(join(dir, "a/file"), "1");
  await files.write(join(dir, "a/b/file"), "22");
  await files.symlink("file", join(dir, "a/link"));
  assert.equal((await files.lstat(join(dir, "a/link"))).linkTarget, "file");
  assert.equal(await files.realpath(join(dir, "a/link")), join(dir, "a/file"));
  const names = (await files.list(join(dir, "a"))).map((e) => [e.name, e.type, e.targetType]);
  assert.deepEqual(names.sort(), [["b", "directory", "directory"], ["file", "file", "file"], ["link", "symlink", "file"]]);
  const walked = [];
  for await (const entry of files.walk(dir, { metadata: true, ignore: ["link"] })) {
    walked.push([entry.path, entry.type, entry.type === "file" ? Number(entry.metadata?.size) : undefined]);
  }
  assert.deepEqual(walked, [["a", "directory", undefined], ["a/b", "directory", undefined], ["a/file", "file", 1], ["a/b/file", "file", 2]]);
  assert.equal(await files.copy(join(dir, "a"), join(dir, "c"), { recursive: true }), 0);
  await files.rename(join(dir, "c"), join(dir, "d"));
  assert.equal(await files.read(join(dir, "d/b/file"), { text: true }), "22");
  await assert.rejects(files.rename(join(dir, "d/file"), join(dir, "d/b/file"), { noReplace: true }), PathExistsError);
  await files.remove(join(dir, "d"), { recursive: true });
  assert.deepEqual(readdirSync(dir), ["a"]);
});

test("names that are not UTF-8 are bytes", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  const path = Buffer.concat([Buffer.from(`${dir}/`), Buffer.from([0xff, 0x61])]);
  await files.write(path, "odd");
  const [entry] = await files.list(dir);
  assert.deepEqual([entry?.name, entry?.rawName && Buffer.from(entry.rawName)], ["\ufffda", Buffer.from([0xff, 0x61])]);
  assert.equal(await files.read(path, { text: true }), "odd");
});

test("large files go up and down exactly while the connection is cut", async (t) => {
  const { url } = await serve(t);
  const dir = directory(t);
  const content = pattern(24 << 20);
  const local = join(dir, "local");
  writeFileSync(local, content);
  async function* once(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < content.length; at += 1_000_003) {
      yield content.subarray(at, at + 1_000_003);
    }
  }
  for (const [name, source] of [["file", { file: local }], ["bytes", content], ["once", once()]] as const) {
    const proxy = await Proxy.start(t, url);
    const { files } = await dial(t, proxy.url);
    let sent = 0;
    let cuts = 0;
    const uploaded = await files.upload(join(dir, name), source, {
      onProgress: (bytes) => {
        if (bytes > sent + (4 << 20)) {
          sent = bytes;
          cuts++;
          proxy.cut();
        }
      },
    });
    assert.ok(cuts >= 3, `${cuts} cuts of ${name}`);
    assert.deepEqual(Buffer.from(uploaded.sha256), sha256(content));
    assert.ok(readFileSync(join(dir, name)).equals(content), name);
  }
  const proxy = await Proxy.start(t, url);
  const { files } = await dial(t, proxy.url);
  let n = 0;
  proxy.cutEvery(() => 2_000_000 + ((n++ * 7_654_321) % 3_000_000));
  const downloaded = await files.downloadFile(local, join(dir, "down"));
  assert.ok(proxy.cuts >= 3, `${proxy.cuts} cuts`);
  assert.deepEqual([downloaded.size, Buffer.from(downloaded.sha256)], [content.length, sha256(content)]);
  assert.ok(readFileSync(join(dir, "down")).equals(content));
});

test("an incomplete download leaves no file", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  const big = join(dir, "big");
  writeFileSync(big, "");
  truncateSync(big, 64 << 20);
  let abort = false;
  const controller = new AbortController();
  await assert.rejects(async () => {
    for await (const piece of files.download(big, { signal: controller.signal })) {
      if (piece.length > 0 && !abort) {
        abort = true;
        controller.abort(new Error("enough"));
      }
    }
  }, /enough/);
  const partly = new AbortController();
  await assert.rejects(files.downloadFile(big, join(dir, "copy"), { signal: partly.signal, onHead: () => partly.abort(new Error("no")) }), /no/);
  assert.deepEqual(readdirSync(dir), ["big"]);
});

test("unreadable content leaves no upload", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  async function* broken(): AsyncGenerator<Uint8Array> {
    yield pattern(1_000_000);
    throw new Error("the disk is gone");
  }
  await assert.rejects(files.upload(join(dir, "a"), broken()), (error: unknown) => error instanceof ReadError && /the disk is gone/.test(error.message));
  await assert.rejects(files.upload(join(dir, "a"), { file: join(dir, "none") }), ReadError);
  assert.deepEqual(readdirSync(dir), []);
});

/** Content that does not end until the test does. */
async function* endless(): AsyncGenerator<Uint8Array> {
  yield pattern(1_000_000);
  await new Promise(() => undefined);
}

/** Starts uploads to a directory, and waits until the server has data of each. */
async function held(program: Program, dir: string, files: Client["files"], signal?: AbortSignal): Promise<Promise<unknown>[]> {
  const uploads = Array.from({ length: 4 }, (_, i) => files.upload(join(dir, `${i}`), endless(), signal && { signal }).then(() => "uploaded", (error: unknown) => error));
  await until(() => program.partialFiles(dir) === uploads.length);
  return uploads;
}

test("the server drops uploads when their signal aborts", async (t) => {
  const { url, program } = await serve(t);
  const { files } = await dial(t, url);
  const dir = directory(t);
  const controller = new AbortController();
  const uploads = await held(program, dir, files, controller.signal);
  const reason = new Error("enough");
  controller.abort(reason);
  assert.deepEqual(await Promise.all(uploads), uploads.map(() => reason));
  await until(() => program.partialFiles(dir) === 0);
  assert.deepEqual(readdirSync(dir), []);
});

test("the server drops uploads whose content or callback fails", async (t) => {
  const { url, program } = await serve(t);
  const { files } = await dial(t, url);
  const dir = directory(t);
  const failure = new Error("enough");
  const fail = (): never => {
    throw failure;
  };
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield pattern(1_000_000);
    await until(() => program.partialFiles(dir) === 1);
    fail();
  }
  await assert.rejects(files.upload(join(dir, "a"), failing()), (error: unknown) => error instanceof ReadError && error.cause === failure);
  await until(() => program.partialFiles(dir) === 0);
  let held = false;
  const onProgress = (): void => void (held ? fail() : (held = program.partialFiles(dir) === 1));
  await assert.rejects(files.upload(join(dir, "a"), pattern(32 << 20), { onProgress }), (error: unknown) => error === failure);
  await until(() => program.partialFiles(dir) === 0);
  assert.deepEqual(readdirSync(dir), []);
});

test("the server drops uploads when their client closes", async (t) => {
  const { url, program } = await serve(t);
  const closed = await dial(t, url);
  const dir = directory(t);
  const uploads = await held(program, dir, closed.files);
  const other = directory(t);
  const untouched = await dial(t, url);
  await held(program, other, untouched.files);
  await closed.close();
  for (const error of await Promise.all(uploads)) {
    assert.ok(error instanceof ClosedError, String(error));
  }
  await until(() => program.partialFiles(dir) === 0);
  assert.equal(program.partialFiles(other), 4);
  assert.deepEqual(readdirSync(dir), []);
  await assert.rejects(closed.files.write(join(dir, "late"), "x"), ClosedError);
});

test("a client with uploads closes when its server does not answer", async (t) => {
  const { url, program } = await serve(t);
  const stalled = await dial(t, url);
  const dir = directory(t);
  const uploads = await held(program, dir, stalled.files);
  after(t, () => program.signalServer("SIGCONT"));
  program.signalServer("SIGSTOP");
  await stalled.close();
  for (const error of await Promise.all(uploads)) {
    assert.ok(error instanceof ClosedError, String(error));
  }
});

test("200 files are written at once", async (t) => {
  const { files } = await client(t);
  const dir = directory(t);
  const warnings: string[] = [];
  const warn = ({ name, message }: Error): void => void (name === "MaxListenersExceededWarning" && warnings.push(message));
  process.on("warning", warn);
  after(t, () => process.off("warning", warn));
  for (const bytes of [20_000, 300_000]) {
    const common = pattern(bytes);
    const contents = Array.from({ length: 200 }, (_, i) => Buffer.concat([Buffer.from([i]), common.subarray(1)]));
    const written = await Promise.all(contents.map((content, i) => files.write(join(dir, `${i}`), content)));
    for (const [i, content] of contents.entries()) {
      assert.equal(written[i]?.size, bytes);
      assert.ok(readFileSync(join(dir, `${i}`)).equals(content), `${i} of ${bytes}`);
    }
  }
  assert.deepEqual(warnings, []);
});

test("a file that changes during a download throws ChangedError", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const { files } = await dial(t, proxy.url);
  const path = join(directory(t), "a");
  writeFileSync(path, pattern(8 << 20));
  await assert.rejects(async () => {
    let cut = false;
    for await (const _ of files.download(path)) {
      if (!cut) {
        cut = true;
        writeFileSync(path, "something else");
        proxy.cut();
      }
    }
  }, ChangedError);
});

test("a stalled download does not block other calls", async (t) => {
  const { files } = await client(t);
  const big = join(directory(t), "big");
  writeFileSync(big, "");
  truncateSync(big, 256 << 20);
  const stalled = [];
  for (let i = 0; i < 8; i++) {
    const download = files.download(big);
    await download.next();
    stalled.push(download);
  }
  let bytes = 0;
  for await (const piece of files.download(big, { length: 32 << 20 })) {
    bytes += piece.length;
  }
  assert.equal(bytes, 32 << 20);
  for (const download of stalled) {
    await download.return({} as never);
  }
});

test("a watch reports changes after its start", async (t) => {
  const { files }: Client = await client(t);
  const dir = directory(t);
  mkdirSync(join(dir, "before"));
  const abort = new AbortController();
  const watch = files.watch(dir, { recursive: true, settleMs: 0, signal: abort.signal });
  assert.deepEqual((await watch.next()).value, { type: "started" });
  symlinkSync("nowhere", join(dir, "before/link"));
  const changed = await watch.next();
  const event = changed.value as WatchEvent;
  assert.ok(event.type === "changes");
  assert.deepEqual(event.changes.map(({ path, kind, type }) => [path, kind, type]), [["before/link", "created", "symlink"]]);
  abort.abort(new Error("seen enough"));
  await assert.rejects(watch.next(), /seen enough/);
  assert.ok(existsSync(dir));
});
