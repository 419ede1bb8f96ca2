import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, symlinkSync, unlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ChangedError, connect, ExecwireError, NotDoneError, PathNotFoundError, UnknownError, UsageError } from "execwire";
import { matcher, patternRegExp } from "#dist/pattern.js";
import { after, all, dial, directory, pattern, Proxy, serve, shared, until } from "./fixture.js";

const configuration = mkdtempSync(join(tmpdir(), "execwire-ts-"));
const config = join(configuration, "config.toml");
writeFileSync(config, "uploads_per_principal = 2\n");
process.once("exit", () => rmSync(configuration, { recursive: true }));
const server = shared("--config", config);

/** A tree of this machine. */
function makeTree(dir: string): void {
  mkdirSync(join(dir, "sub/empty"), { recursive: true });
  mkdirSync(join(dir, "node_modules/x"), { recursive: true });
  writeFileSync(join(dir, "a"), "content of a");
  writeFileSync(join(dir, "sub/run"), "#!/bin/sh\n");
  writeFileSync(join(dir, "sub/large"), pattern(100_000));
  writeFileSync(join(dir, "node_modules/x/y"), "left out");
  chmodSync(join(dir, "sub/run"), 0o750);
  symlinkSync("../a", join(dir, "sub/link"));
  utimesSync(join(dir, "a"), 1_500_000_000, 1_500_000_000.5);
}

/** The paths below a directory, and what they are. */
function described(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: "utf8" })
    .map((name) => {
      const stats = lstatSync(join(dir, name));
      if (stats.isSymbolicLink()) {
        return `${name} -> ${readlinkSync(join(dir, name))}`;
      }
      return stats.isDirectory() ? `${name}/` : `${name} ${(stats.mode & 0o777).toString(8)} ${readFileSync(join(dir, name)).length}`;
    })
    .sort();
}

test("a directory is pushed, pulled and synchronized", async (t) => {
  const { files } = server();
  const [source, there, back] = [directory(t), join(directory(t), "there"), join(directory(t), "back")];
  makeTree(source);
  const seen: [number, number, string][] = [];
  const onProgress = (bytes: number, total: number, path: string): void => void seen.push([bytes, total, path]);
  const pushed = await files.push(source, there, { ignore: ["node_modules"], onProgress });
  const total = 12 + 10 + 100_000;
  assert.deepEqual(pushed, { files: 3, links: 1, directories: 3, skipped: 0, omitted: 0, deleted: 0, bytes: total });
  assert.deepEqual(described(there), described(source).filter((line) => !line.startsWith("node_modules")));
  assert.equal(statSync(join(there, "a")).mtimeMs, 1_500_000_000_500);
  assert.deepEqual(new Set(seen.map(([, , path]) => path)), new Set(["a", "sub/run", "sub/large"]));
  assert.ok(seen.every(([bytes, all], i) => all === total && bytes >= (seen[i - 1]?.[0] ?? 0)));
  assert.equal(seen.at(-1)?.[0], total);

  let pulledBytes = 0;
  const pulled = await files.pull(there, back, { onProgress: (bytes) => (pulledBytes = bytes) });
  assert.deepEqual([pulled.files, pulled.links, pulled.directories, pulledBytes], [3, 1, 3, total]);
  assert.deepEqual(described(back), described(there));
  assert.equal(statSync(join(back, "a")).mtimeMs, 1_500_000_000_500);

  writeFileSync(join(source, "a"), "other");
  rmSync(join(source, "sub/large"));
  writeFileSync(join(there, "extra"), "x");
  mkdirSync(join(there, "node_modules"));
  const kept = await files.sync(source, there, { ignore: ["node_modules/"] });
  assert.deepEqual([kept.files, kept.skipped, kept.deleted], [1, 2, 0]);
  const synced = await files.sync(source, there, { ignore: ["node_modules/"], delete: true });
  assert.deepEqual([synced.files, synced.skipped, synced.deleted], [0, 3, 2]);
  assert.equal(readFileSync(join(there, "a"), "utf8"), "other");
  assert.deepEqual(readdirSync(there).sort(), ["a", "node_modules", "sub"]);
  const same = await files.pull(there, source, { update: true });
  assert.deepEqual([same.files, same.skipped], [0, 3]);
});

test("entries of another type are in the way without delete", async (t) => {
  const { files } = server();
  const [source, there, outside] = [directory(t), directory(t), directory(t)];
  mkdirSync(join(source, "d"));
  writeFileSync(join(source, "d/file"), "x");
  symlinkSync(outside, join(there, "d"));
  await assert.rejects(files.push(source, there), /d is not a directory there/);
  await assert.rejects(files.pull(source, there), /d is not a directory there/);
  assert.deepEqual(readdirSync(outside), []);
  const { deleted } = await files.push(source, there, { delete: true });
  assert.equal(deleted, 1);
  assert.deepEqual([readFileSync(join(there, "d/file"), "utf8"), readdirSync(outside)], ["x", []]);
});

test("delete leaves what the transfer is not about", async (t) => {
  const { files } = server();
  const [source, there] = [directory(t), directory(t)];
  writeFileSync(join(source, "file"), "x");
  execFileSync("mkfifo", [join(source, "fifo"), join(there, "fifo")]);
  mkdirSync(join(there, "kept"));
  // The destination itself is never removed.
  await assert.rejects(files.push(join(source, "file"), there, { delete: true }), /the destination is not a file there/);
  await assert.rejects(files.pull(join(source, "file"), there, { delete: true }), /the destination is not a file there/);
  // An empty path is no directory.
  await assert.rejects(files.sync("", there, { delete: true }), UsageError);
  await assert.rejects(files.pull(there, "", { delete: true }), UsageError);
  assert.deepEqual(readdirSync(there).sort(), ["fifo", "kept"]);
  const { deleted, omitted } = await files.sync(source, there, { delete: true });
  assert.deepEqual([deleted, omitted, readdirSync(there).sort()], [1, 1, ["fifo", "file"]]);
});

test("a file is not written through a link, nor a link put in place of a file", async (t) => {
  const { files } = server();
  const [source, there, outside] = [directory(t), directory(t), join(directory(t), "outside")];
  writeFileSync(outside, "kept");
  writeFileSync(join(source, "a"), "x");
  symlinkSync(outside, join(there, "a"));
  for (const copy of [files.push, files.pull]) {
    await assert.rejects(copy.call(files, source, there), /a is not a file there/);
    await assert.rejects(copy.call(files, there, source), /a is not a symlink there/);
  }
  assert.deepEqual([readFileSync(outside, "utf8"), readFileSync(join(source, "a"), "utf8")], ["kept", "x"]);
  await files.push(source, there, { delete: true });
  assert.deepEqual([readFileSync(outside, "utf8"), readFileSync(join(there, "a"), "utf8")], ["kept", "x"]);
});

test("names and targets that are not UTF-8 are refused, long names are not", async (t) => {
  const { files } = server();
  const [source, there] = [directory(t), directory(t)];
  const long = "n".repeat(255);
  writeFileSync(join(source, long), "x", { mode: 0o604 });
  assert.equal((await files.pull(source, there)).files, 1);
  assert.deepEqual(readdirSync(there), [long]);
  const [name, link] = [Buffer.concat([Buffer.from(`${there}/`), Buffer.from([0xff])]), Buffer.from(join(there, "link"))];
  for (const [odd, make] of [[name, () => writeFileSync(name, "")], [link, () => symlinkSync(Buffer.from([0xff]), link)]] as const) {
    make();
    for (const copy of [files.push, files.pull]) {
      await assert.rejects(copy.call(files, there, source, { delete: true }), /is not UTF-8/);
      await assert.rejects(copy.call(files, source, there, { delete: true }), /is not UTF-8/);
      assert.equal((await copy.call(files, source, there, { delete: true, update: true, ignore: ["?", "link"] })).skipped, 1);
    }
    unlinkSync(odd);
  }
});

test("a single file is copied, and a missing source is an error", async (t) => {
  const { files } = server();
  const dir = directory(t);
  writeFileSync(join(dir, "a"), "content");
  assert.equal((await files.push(join(dir, "a"), join(dir, "b"))).files, 1);
  assert.equal((await files.pull(join(dir, "b"), join(dir, "c"))).files, 1);
  assert.equal(readFileSync(join(dir, "c"), "utf8"), "content");
  for (const time of [1_764_000_000_001, 1_764_000_000_123, 1_764_000_000_570, 1_764_000_000_999, -1_877]) {
    await files.write(join(dir, "b"), "content", { modifyTime: new Date(time) });
    assert.equal((await files.pull(join(dir, "b"), join(dir, "c"), { update: true })).files, 1);
    assert.equal((await files.pull(join(dir, "b"), join(dir, "c"), { update: true })).skipped, 1, `${time}`);
  }
  await assert.rejects(files.push(join(dir, "none"), join(dir, "d")), { code: "ENOENT" });
  await assert.rejects(files.pull(join(dir, "none"), join(dir, "d")), PathNotFoundError);
  const reason = new Error("enough");
  await assert.rejects(files.push(dir, join(dir, "d"), { signal: AbortSignal.abort(reason) }), reason);
  const fail = (): never => {
    throw reason;
  };
  await assert.rejects(files.pull(join(dir, "b"), join(dir, "d"), { onProgress: fail }), reason);
  assert.deepEqual(readdirSync(dir).sort(), ["a", "b", "c"]);
});

test("uploads beyond the limit of the server wait for their turn", async (t) => {
  const { files } = server();
  const dir = directory(t);
  const names = Array.from({ length: 12 }, (_, i) => `${i}`);
  await Promise.all(names.map((name) => files.write(join(dir, name), pattern(200_000))));
  assert.deepEqual(readdirSync(dir).sort(), names.sort());
});

test("a glob matches as in a shell", async (t) => {
  const { files } = server();
  const dir = directory(t);
  for (const name of ["src/a.ts", "src/b.js", "src/deep/er/c.ts", ".hidden/d.ts", "src/.e.ts", "x[1].ts"]) {
    mkdirSync(join(dir, name, ".."), { recursive: true });
    writeFileSync(join(dir, name), "");
  }
  symlinkSync("src", join(dir, "link"));
  const found = async (glob: string): Promise<string[]> => (await files.glob(`${dir}/${glob}`)).map((path) => String(path).slice(dir.length + 1));
  assert.deepEqual(await found("src/*.ts"), ["src/a.ts"]);
  assert.deepEqual(await found("*/[!b].?s"), ["link/a.ts", "src/a.ts"]);
  assert.deepEqual(await found("*/?.[jt]s"), ["link/a.ts", "link/b.js", "src/a.ts", "src/b.js"]);
  assert.deepEqual(await found("**/*.ts"), ["src/a.ts", "src/deep/er/c.ts", "x[1].ts"]);
  assert.deepEqual(await found("**/deep/**/c.ts"), ["src/deep/er/c.ts"]);
  assert.deepEqual(await found("src/**"), ["src/a.ts", "src/b.js", "src/deep", "src/deep/er", "src/deep/er/c.ts"]);
  assert.deepEqual(await found(".h*/*"), [".hidden/d.ts"]);
  assert.deepEqual(await found("x\\[1].ts"), ["x[1].ts"]);
  assert.deepEqual(await found("none/*"), []);
  assert.deepEqual(await found("src/a.ts"), ["src/a.ts"]);
  await assert.rejects(files.glob("*.ts"), UsageError);
});

test("patterns match as those of the server", async (t) => {
  const { files } = server();
  const dir = directory(t);
  const names = ["x.o", "sub/x.o", "top", "sub/top", "a/b", "c/a/b", "dir/x", "sub/dir/x", "deep/x", "1/2/deep/x", "b1", "d1", "ab/b", "abb", "a\nb", "é", "]", "-", "!x", "\\"];
  for (const name of names) {
    mkdirSync(join(dir, name, ".."), { recursive: true });
    writeFileSync(join(dir, name), "");
  }
  const tree: [string, boolean][] = [];
  for await (const { path, type } of files.walk(dir)) {
    tree.push([path, type === "directory"]);
  }
  const patterns = [
    "*.o", "/top", "a/b", "dir/", "**/deep/x", "[a-c]?", "a**b", "a**/b", "**", "sub/**", "**/dir/**", "/**/x", "[!a-z]", "[^a]?", "[]]", "[\\]-]", "[a-]", "[z-a]", "[!z-a]",
    "[--9]*", "?", "a\\b", "\\!x", "\\\\", "[\\\\]", "a?b", "[é]", "*/[!b]",
  ];
  for (const pattern of patterns) {
    const ignored = matcher([pattern]);
    const left = tree.filter(([path]) => !path.split("/").some((_, i, parts) => ignored(parts.slice(0, i + 1).join("/"), i + 1 < parts.length || (tree.find(([one]) => one === path)?.[1] ?? false))));
    const walked: string[] = [];
    for await (const { path } of files.walk(dir, { ignore: [pattern] })) {
      walked.push(path);
    }
    assert.deepEqual(left.map(([path]) => path).sort(), walked.sort(), pattern);
  }
  for (const pattern of ["!x", "", "/", "a//b", "../a", "a/.", "[", "[]", "[!]", "a[b/c]", "[[:alpha:]]", "a\\", "\0"]) {
    assert.throws(() => matcher([pattern]), UsageError, pattern);
    await assert.rejects(all(files.walk(dir, { ignore: [pattern] })), ExecwireError, pattern);
  }
  assert.ok(!patternRegExp("a.b").test("axb"));
});

test("an edit replaces text once, or says why not", async (t) => {
  const { files } = server();
  const path = join(directory(t), "file");
  writeFileSync(path, "one two two\n", { mode: 0o640 });
  assert.equal(await files.edit(path, "one", "$& 1"), 1);
  await assert.rejects(files.edit(path, "two", "2"), /occurs 2 times/);
  await assert.rejects(files.edit(path, "three", "3"), /occurs 0 times/);
  assert.equal(await files.edit(path, "two", "2", { every: true }), 2);
  assert.deepEqual([await files.read(path, { text: true }), statSync(path).mode & 0o777], ["$& 1 2 2\n", 0o640]);
  writeFileSync(path, new Uint8Array([0xff]));
  await assert.rejects(files.read(path, { text: true }), TypeError);
  await assert.rejects(files.write(path, "x", { ifMatchSha256: new Uint8Array(32) }), ChangedError);
});

test("a copy walks again if the connection is lost meanwhile", async (t) => {
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const { files, stubs } = await dial(t, proxy.url);
  const [source, there, back] = [directory(t), directory(t), directory(t)];
  makeTree(source);
  const walk = stubs.files.walkDirectory;
  let walks = 0;
  stubs.files.walkDirectory = async function* (...request) {
    if (++walks % 2 === 1) {
      proxy.refuse();
    }
    try {
      yield* walk(...request);
    } finally {
      proxy.admit();
    }
  };
  await files.push(source, there);
  await files.pull(there, back);
  assert.deepEqual([walks, described(back)], [4, described(source)]);
});

test("an interrupted call says whether it took effect", async (t) => {
  const { url, program } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const { files } = await dial(t, proxy.url);
  const dir = directory(t);
  writeFileSync(join(dir, "a"), "");
  proxy.deaf = true; // to the answer
  const renamed = assert.rejects(files.rename(join(dir, "a"), join(dir, "b")), UnknownError);
  await until(() => existsSync(join(dir, "b")));
  proxy.deaf = false;
  proxy.cut();
  await renamed;
  const late = await connect(url, { resumeForMs: 1 });
  after(t, () => late.close());
  await program.stop();
  await assert.rejects(late.files.stat(dir)); // it learns that the connection is lost
  await assert.rejects(late.files.rename(join(dir, "b"), join(dir, "c")), NotDoneError);
});
