import { isUtf8 } from "node:buffer";
import { chmod, lstat, mkdir, readdir, readlink, rm, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import type { Downloaded, DownloadOptions } from "./download.js";
import { ProtocolError, ReadError, UnknownError, UsageError } from "./errors.js";
import type { FileMetadata } from "./gen/execwire/v1/filesystem_metadata_pb.js";
import { matcher } from "./pattern.js";
import { Slots } from "./queue.js";
import { save } from "./save.js";
import { dateOf, LinkedSignal } from "./time.js";
import type { UploadOptions } from "./upload.js";

/** Options of {@link FileSystem.push}, {@link FileSystem.pull} and {@link FileSystem.sync}. */
export interface TransferOptions {
  /**
   * Patterns of entries to leave out, with everything below, in .gitignore notation without negation. They are deleted
   * only with a directory that the source does not have.
   */
  readonly ignore?: readonly string[];
  /** Skips files of the same size and modification time. */
  readonly update?: boolean;
  /**
   * Removes what the source does not have, after everything was copied, and entries of another type that are in the
   * way. Otherwise those fail. The destination itself is never removed: one of another type fails.
   */
  readonly delete?: boolean;
  /** Called with the bytes copied so far, those to copy in total, and the path of the current file in the source. */
  readonly onProgress?: (bytes: number, total: number, path: string) => void;
  /** Ends the copy, and leaves what was copied. */
  readonly signal?: AbortSignal;
}

/** What was copied. */
export interface Transferred {
  /** Files that were copied. */
  readonly files: number;
  /** Links that were copied. */
  readonly links: number;
  /** Directories that were made. */
  readonly directories: number;
  /** Files and links that were the same. */
  readonly skipped: number;
  /** Sockets, FIFOs and devices, which are not copied. */
  readonly omitted: number;
  /** Paths of the destination that were removed. */
  readonly deleted: number;
  /** The size of the copied files. */
  readonly bytes: number;
}

/** What a transfer needs of the files of a server. */
export interface RemoteFiles {
  stat(path: string, options: { signal: AbortSignal }): Promise<{ type: string; linkTarget: string; metadata: FileMetadata }>;
  lstat(path: string, options: { signal: AbortSignal }): Promise<{ linkTarget: string }>;
  walkAll(path: string, options: { metadata: boolean; ignore: readonly string[]; onFailed: (path: string, message: string) => void; signal: AbortSignal }): Promise<RemoteEntry[]>;
  upload(path: string, content: { file: string }, options: UploadOptions): Promise<{ size: number }>;
  download(path: string, options: DownloadOptions): AsyncGenerator<Uint8Array, Downloaded, undefined>;
  mkdir(path: string, options: { parents: true; mode: number; signal: AbortSignal }): Promise<void>;
  remove(path: string, options: { recursive: true; ignoreMissing: true; signal: AbortSignal }): Promise<void>;
  symlink(target: string, path: string, options: { signal: AbortSignal }): Promise<void>;
}

interface RemoteEntry {
  readonly path: string;
  readonly rawPath: Uint8Array | undefined;
  readonly type: string;
  readonly metadata: FileMetadata | undefined;
  readonly linkTarget: string;
  readonly rawLinkTarget: Uint8Array | undefined;
}

/** An entry of a tree, by its path relative to the top, which is "". */
interface Entry {
  readonly type: string;
  readonly size: number;
  readonly mode: number;
  readonly modifyTime: Date;
  readonly target: string;
}

/** An end of a transfer. */
interface Side {
  /** Everything that is there, directories before what is in them. If the top is a link, it is followed. */
  entries(ignore: readonly string[], signal: AbortSignal): Promise<Map<string, Entry>>;
  mkdir(path: string, mode: number, signal: AbortSignal): Promise<void>;
  symlink(path: string, target: string, signal: AbortSignal): Promise<void>;
  remove(path: string, signal: AbortSignal): Promise<void>;
}

type Copy = (path: string, entry: Entry, onProgress: (bytes: number) => void, signal: AbortSignal) => Promise<void>;

/** How many files are copied at once. */
const parallel = 16;

/** Copies a file or a directory of this machine to a path of the server. */
export function push(files: RemoteFiles, local: string, path: string, options: TransferOptions): Promise<Transferred> {
  const source = new LocalSide(local);
  const destination = new RemoteSide(files, path);
  return transfer(source, destination, options, async (name, { mode, modifyTime }, onProgress, signal) => {
    await files.upload(destination.at(name), { file: source.at(name) }, { mode, modifyTime, onProgress, signal });
  });
}

/** Copies a file or a directory of the server to a path of this machine. */
export function pull(files: RemoteFiles, path: string, local: string, options: TransferOptions): Promise<Transferred> {
  const source = new RemoteSide(files, path);
  const destination = new LocalSide(local);
  return transfer(source, destination, options, async (name, { mode, modifyTime }, onProgress, signal) => {
    await save(counted(files.download(source.at(name), { signal }), onProgress), destination.at(name), { mode, modifyTime });
  });
}

async function* counted(pieces: AsyncGenerator<Uint8Array, Downloaded, undefined>, onProgress: (bytes: number) => void): AsyncGenerator<Uint8Array, Downloaded, undefined> {
  let bytes = 0;
  try {
    for (;;) {
      const piece = await pieces.next();
      if (piece.done) {
        return piece.value;
      }
      onProgress((bytes += piece.value.length));
      yield piece.value;
    }
  } finally {
    await pieces.return(undefined as never);
  }
}

async function transfer(source: Side, destination: Side, options: TransferOptions, copy: Copy): Promise<Transferred> {
  const stop = new LinkedSignal(options.signal);
  try {
    stop.signal.throwIfAborted();
    return await copyAll(source, destination, options, copy, stop);
  } catch (error) {
    stop.abort(error); // of concurrent copies the first error counts
    throw stop.signal.reason;
  } finally {
    stop.dispose();
  }
}

async function copyAll(source: Side, destination: Side, options: TransferOptions, copy: Copy, stop: LinkedSignal): Promise<Transferred> {
  const { signal } = stop;
  const { ignore = [] } = options;
  const here = await source.entries(ignore, signal);
  const there = await destination.entries(ignore, signal).catch(noEntries);
  const done = { files: 0, links: 0, directories: 0, skipped: 0, omitted: 0, deleted: 0, bytes: 0 };
  const remove = async (path: string): Promise<void> => {
    await destination.remove(path, signal);
    done.deleted++;
  };

  // Links come last: nothing is written through one that this transfer makes.
  const copied: [string, Entry][] = [];
  const links: [string, Entry][] = [];
  for (const [path, entry] of here) {
    if (path !== "" && here.get(path.slice(0, Math.max(0, path.lastIndexOf("/"))))?.type !== "directory") {
      throw new ProtocolError(`it listed ${path}, which is in no directory that it listed`);
    }
    const old = there.get(path);
    if (old && old.type !== entry.type && entry.type !== "special") {
      if (path === "" || !options.delete) {
        throw new UsageError(`${path || "the destination"} is not a ${entry.type} there: remove it${path && ", or set delete"}`);
      }
      await remove(path);
      for (const below of there.keys()) {
        if (below === path || below.startsWith(`${path}/`)) {
          there.delete(below);
        }
      }
    }
    switch (entry.type) {
      case "directory":
        if (!there.has(path)) {
          await destination.mkdir(path, entry.mode | 0o700, signal); // files are made in it
          done.directories++;
        }
        break;
      case "file":
        if (options.update && there.has(path) && isSame(entry, there.get(path) as Entry)) {
          done.skipped++;
        } else {
          copied.push([path, entry]);
        }
        break;
      case "symlink":
        links.push([path, entry]);
        break;
      default:
        done.omitted++;
    }
  }

  const total = copied.reduce((bytes, [, { size }]) => bytes + size, 0);
  const slots = new Slots(parallel);
  await Promise.all(
    copied.map(([path, entry]) =>
      slots
        .run(async () => {
          let sent = 0;
          const advance = (bytes: number): void => {
            done.bytes += bytes - sent;
            sent = bytes;
            options.onProgress?.(done.bytes, total, path);
          };
          await copy(path, entry, advance, signal);
          done.files++;
        }, signal)
        .catch((error: unknown) => stop.abort(error)),
    ),
  );
  signal.throwIfAborted();

  for (const [path, { target }] of links) {
    const old = there.get(path);
    if (old?.target === target) {
      done.skipped++;
      continue;
    }
    if (old) {
      await destination.remove(path, signal);
    }
    await destination.symlink(path, target, signal);
    done.links++;
  }
  if (options.delete) {
    for (const path of there.keys()) {
      const parent = path.slice(0, Math.max(0, path.lastIndexOf("/")));
      if (!here.has(path) && here.get(parent)?.type === "directory") {
        await remove(path); // with everything below
      }
    }
  }
  return done;
}

function isSame(a: Entry, b: Entry): boolean {
  const [x, y] = [a.modifyTime.getTime(), b.modifyTime.getTime()];
  const coarse = x % 1000 === 0 || y % 1000 === 0; // a file system without fractions of seconds
  return b.type === "file" && a.size === b.size && a.mode === b.mode && (coarse ? Math.floor(x / 1000) === Math.floor(y / 1000) : x === y);
}

function noEntries(error: unknown): Map<string, Entry> {
  const { code, reason } = error as { code?: string; reason?: string };
  if (code === "ENOENT" || reason === "PATH_NOT_FOUND") {
    return new Map();
  }
  throw error;
}

function notUtf8(what: string): UsageError {
  return new UsageError(`${what} is not UTF-8: leave it out with ignore, and copy it by itself`);
}

/** Nothing for an entry that was removed since it was listed. */
function unlessGone(error: unknown): void {
  if ((error as { code?: string }).code !== "ENOENT") {
    throw error;
  }
}

class LocalSide implements Side {
  constructor(private readonly top: string) {
    if (top === "") {
      throw new UsageError('the path on this machine is empty: "." is the current directory');
    }
  }

  at(path: string): string {
    return join(this.top, path);
  }

  async entries(ignore: readonly string[]): Promise<Map<string, Entry>> {
    const entries = new Map<string, Entry>();
    const ignored = matcher(ignore);
    const add = async (path: string): Promise<void> => {
      const stats = await (path === "" ? stat : lstat)(this.at(path));
      const type = stats.isDirectory() ? "directory" : stats.isFile() ? "file" : stats.isSymbolicLink() ? "symlink" : "special";
      if (path !== "" && ignored(path, stats.isDirectory())) {
        return;
      }
      const target = type === "symlink" ? await readlink(this.at(path), "buffer") : Buffer.alloc(0);
      if (!isUtf8(target)) {
        throw notUtf8(`the target of ${this.at(path)}`);
      }
      entries.set(path, { type, size: stats.size, mode: stats.mode & 0o777, modifyTime: new Date(Math.floor(stats.mtimeMs)), target: target.toString() });
      if (type === "directory") {
        for (const bytes of await readdir(this.at(path), "buffer")) {
          const name = bytes.toString();
          const below = path === "" ? name : `${path}/${name}`;
          if (isUtf8(bytes)) {
            await add(below).catch(unlessGone);
          } else if (!ignored(below, false)) {
            throw notUtf8(`the name of ${this.at(below)}`);
          }
        }
      }
    };
    await add("");
    return entries;
  }

  async mkdir(path: string, mode: number): Promise<void> {
    await mkdir(this.at(path), { recursive: path === "" });
    await chmod(this.at(path), mode);
  }

  symlink(path: string, target: string): Promise<void> {
    return symlink(target, this.at(path));
  }

  remove(path: string): Promise<void> {
    return rm(this.at(path), { recursive: true, force: true });
  }
}

class RemoteSide implements Side {
  constructor(private readonly files: RemoteFiles, private readonly top: string) {}

  at(path: string): string {
    return path === "" ? this.top : `${this.top.replace(/\/+$/, "")}/${path}`;
  }

  async entries(ignore: readonly string[], signal: AbortSignal): Promise<Map<string, Entry>> {
    const top = await this.files.stat(this.top, { signal });
    const entries = new Map([["", entryOf(top)]]);
    if (top.type !== "directory") {
      return entries;
    }
    const onFailed = (path: string, message: string): void => {
      throw new ReadError(`failed to read ${this.at(path)}: ${message}`);
    };
    for (const entry of await this.files.walkAll(this.top, { metadata: true, ignore, onFailed, signal })) {
      if (entry.rawPath) {
        throw notUtf8(`the name of ${this.at(entry.path)}`);
      }
      if (entry.rawLinkTarget) {
        throw notUtf8(`the target of ${this.at(entry.path)}`);
      }
      entries.set(entry.path, entryOf(entry));
    }
    return entries;
  }

  mkdir(path: string, mode: number, signal: AbortSignal): Promise<void> {
    return this.files.mkdir(this.at(path), { parents: true, mode, signal }); // so it is repeated
  }

  async symlink(path: string, target: string, signal: AbortSignal): Promise<void> {
    try {
      await this.files.symlink(target, this.at(path), { signal });
    } catch (error) {
      if (!(error instanceof UnknownError)) {
        throw error;
      }
      const made = await this.files.lstat(this.at(path), { signal }).catch(noEntries);
      if (!("linkTarget" in made) || made.linkTarget !== target) {
        await this.symlink(path, target, signal);
      }
    }
  }

  remove(path: string, signal: AbortSignal): Promise<void> {
    return this.files.remove(this.at(path), { recursive: true, ignoreMissing: true, signal });
  }
}

function entryOf({ type, linkTarget, metadata }: Pick<RemoteEntry, "type" | "linkTarget" | "metadata">): Entry {
  return {
    type: ["directory", "file", "symlink"].includes(type) ? type : "special",
    size: Number(metadata?.size ?? 0),
    mode: (metadata?.mode ?? 0) & 0o777,
    modifyTime: dateOf(metadata?.modifyTime) ?? new Date(0),
    target: linkTarget,
  };
}
