import { platform } from "#platform";
import { concat } from "./bytes.js";
import { ProtocolError, TruncatedError, UsageError } from "./errors.js";
import { type DownloadOptions, type Downloaded, download } from "./download.js";
import type { Output } from "./exit.js";
import { glob } from "./glob.js";
import { FileType as TypeNumber, type FileMetadata } from "./gen/execwire/v1/filesystem_metadata_pb.js";
import { FileURLMethod } from "./gen/execwire/v1/filesystem_url_pb.js";
import { WatchChangeKind, WatchLostReason } from "./gen/execwire/v1/filesystem_watch_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { isName, pairFields, type Path, pathFields, displayPath, targetFields } from "./paths.js";
import type { Rpc } from "./rpc.js";
import { dateOf, durationOf } from "./time.js";
import type { Transferred, TransferOptions } from "./tree.js";
import type { Content, Uploaded, UploadOptions } from "./upload.js";

/** The type of a file. "unknown" for a link to nothing. */
export type FileType = "file" | "directory" | "symlink" | "fifo" | "socket" | "character_device" | "block_device" | "unknown";

/** The description of a file. */
export interface FileInfo {
  /** Its type; of stat, that of the target of a link. */
  readonly type: FileType;
  /** Whether the path itself is a link. */
  readonly isSymlink: boolean;
  /** The size in bytes. */
  readonly size: number;
  /** The permission bits with set-user-ID, set-group-ID and sticky. */
  readonly mode: number;
  /** The number of its owner. */
  readonly userId: number;
  /** The number of its group. */
  readonly groupId: number;
  /** When its content was last modified; undefined if unknown. */
  readonly modifyTime: Date | undefined;
  /** Changes whenever the file changes. */
  readonly version: string;
  /** The target of a link, as written in it; only of lstat. */
  readonly linkTarget: string;
  /** The digest of a regular file; only if requested. */
  readonly sha256: Uint8Array | undefined;
  /** The complete metadata of the server. */
  readonly metadata: FileMetadata;
}

/** An entry of a directory. */
export interface DirectoryEntry {
  /** The name, with U+FFFD for invalid UTF-8; rawName has its bytes then. */
  readonly name: string;
  /** The bytes of a name that is not UTF-8; otherwise undefined. */
  readonly rawName: Uint8Array | undefined;
  /** Its type; of a link "symlink". */
  readonly type: FileType;
  /** The type or, for a link, that of its target. */
  readonly targetType: FileType;
}

/** An entry below a directory. */
export interface WalkEntry {
  /** The path relative to the directory, with U+FFFD for invalid UTF-8; rawPath has its bytes then. */
  readonly path: string;
  /** The bytes of a path that is not UTF-8; otherwise undefined. */
  readonly rawPath: Uint8Array | undefined;
  /** Its type; of a link "symlink". */
  readonly type: FileType;
  /** Its metadata, if requested. */
  readonly metadata: FileMetadata | undefined;
  /** The target of a link, if metadata was requested; otherwise empty. */
  readonly linkTarget: string;
  /** The target of a link, if it is not UTF-8. */
  readonly rawLinkTarget: Uint8Array | undefined;
}

/** Options of {@link FileSystem.walk}. */
export interface WalkOptions {
  /** Limits the depth; 0 reads the directory itself only. */
  readonly maxDepth?: number;
  /** Patterns of entries to skip, with everything below, in .gitignore notation. */
  readonly ignore?: readonly string[];
  /** Requests the metadata of each entry. */
  readonly metadata?: boolean;
  /** Called for directories that could not be read. Absent ignores them. */
  readonly onFailed?: (path: string, message: string) => void;
  /** Ends the walk. */
  readonly signal?: AbortSignal;
}

/** Options of {@link FileSystem.watch}. */
export interface WatchOptions {
  /** Includes everything below. */
  readonly recursive?: boolean;
  /** Patterns of entries to ignore, with everything below, in .gitignore notation. */
  readonly ignore?: readonly string[];
  /** How long there must be no change before changes are sent, in milliseconds. Absent is 50. */
  readonly settleMs?: number;
  /** Ends the watch. */
  readonly signal?: AbortSignal;
}

/** An event of a watch. */
export type WatchEvent =
  | {
      /** The first event: later changes are reported. List the directory now to know its initial content. */
      readonly type: "started";
    }
  | {
      /** Something has changed. */
      readonly type: "changes";
      /** The changes, in order. */
      readonly changes: readonly WatchChange[];
    }
  | {
      /** Changes were lost: rescan everything. */
      readonly type: "overflow";
    }
  | {
      /** A directory is no longer watched. */
      readonly type: "lost";
      /** Its path relative to the watched one, which is "". */
      readonly path: string;
      /** Why, in one word, such as "removed". */
      readonly reason: string;
      /** Why, for people. */
      readonly message: string;
    };

/** A change of a name. */
export interface WatchChange {
  /** The path relative to the directory, with U+FFFD for invalid UTF-8; rawPath has its bytes then. */
  readonly path: string;
  /** The bytes of a path that is not UTF-8; otherwise undefined. */
  readonly rawPath: Uint8Array | undefined;
  /** What happened. */
  readonly kind: "created" | "modified" | "metadata" | "removed";
  /** Its type now; "unknown" if it does not exist. */
  readonly type: FileType;
}

/** A signed URL, as {@link FileSystem.signUrl} makes it. */
export interface SignedUrl {
  /** The URL. */
  readonly url: string;
  /** When it expires, by the server's clock. */
  readonly expires: Date;
}

/** Options of {@link FileSystem.mkdir}. */
export interface MkdirOptions {
  /** Also makes the directories above that are missing, and accepts an existing directory. */
  readonly parents?: boolean;
  /** The permission bits. Absent is 0o777 without the umask of the server. */
  readonly mode?: number;
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

/** @inline */
interface Signalled {
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

/**
 * The files of the server's machine. Paths are absolute; those that are not UTF-8 are given as bytes.
 * Idempotent calls are repeated after a lost connection; others throw NotDoneError or UnknownError. Errors of
 * the server have classes, such as PathNotFoundError.
 */
export class FileSystem {
  /** @internal */
  constructor(private readonly rpc: Rpc, private readonly sandbox: SandboxPolicy | undefined) {}

  /** Returns the content of a file as bytes or, with `text`, as text, which throws a TypeError for invalid UTF-8. */
  async read<Text extends boolean = false>(path: Path, options: DownloadOptions & { readonly text?: Text } = {}): Promise<Output<Text>> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.download(path, options)) {
      pieces.push(piece);
    }
    const bytes = concat(pieces);
    return (options.text ? textOf(bytes) : bytes) as Output<Text>;
  }

  /**
   * Replaces `old` in a text file by `replacement`, atomically, and returns how often. It throws a UsageError, and
   * changes nothing, if `old` does not occur, or more than once without `every`; and {@link ChangedError} if the file
   * was changed meanwhile.
   */
  async edit(path: Path, old: string, replacement: string, options: Signalled & { readonly every?: boolean } = {}): Promise<number> {
    const { every = false, ...rest } = options;
    const before = await this.read(path, rest);
    const pieces = textOf(before).split(old);
    const count = old === "" ? 0 : pieces.length - 1;
    if (count === 0 || (count > 1 && !every)) {
      throw new UsageError(`the text to replace occurs ${count} times in ${displayPath(path)}`);
    }
    await this.upload(path, pieces.join(replacement), { ...rest, ifMatchSha256: digestOf(before) });
    return count;
  }

  /**
   * Returns the existing paths that match an absolute pattern, sorted, as a shell does: "*" and "?" match no slash and
   * no leading dot, "[a-z]" a character, "**" any directories, and at the end everything below. Directories that cannot
   * be read have no matches.
   */
  glob(pattern: string, options: Signalled = {}): Promise<Path[]> {
    return glob(this, pattern, options.signal);
  }

  /** Replaces the content of a file. The same as `upload`. */
  async write(path: Path, content: Content, options: UploadOptions = {}): Promise<Uploaded> {
    return this.upload(path, content, options);
  }

  /**
   * Writes content to a file: text, bytes, pieces, or `{ file }` of this machine. The file is replaced
   * atomically once the content is complete and verified; a failure leaves the previous file. A lost
   * connection is resumed from what the server has received.
   */
  upload(path: Path, content: Content, options: UploadOptions = {}): Promise<Uploaded> {
    return platform.upload(this.rpc, path, content, options, this.sandbox);
  }

  /**
   * Copies a file or a directory of this machine to exactly that path of the server, merging into an existing
   * directory. Permission bits and modification times are copied, links as links. Every file is replaced atomically;
   * the first error ends the copy and leaves what was copied. Names must be UTF-8.
   */
  async push(local: string, path: string, options: TransferOptions = {}): Promise<Transferred> {
    return platform.push(this, local, path, options);
  }

  /** Copies a file or a directory of the server to exactly that path of this machine, as `push` does. */
  async pull(path: string, local: string, options: TransferOptions = {}): Promise<Transferred> {
    return platform.pull(this, path, local, options);
  }

  /** Pushes what differs by size, permission bits or modification time; with `delete` the paths are the same afterwards. */
  async sync(local: string, path: string, options: Omit<TransferOptions, "update"> = {}): Promise<Transferred> {
    return this.push(local, path, { ...options, update: true });
  }

  /** Iterates over the content of a file. The return value has the digest. */
  download(path: Path, options: DownloadOptions = {}): AsyncGenerator<Uint8Array, Downloaded, undefined> {
    return download(this.rpc, path, options, this.sandbox);
  }

  /** Downloads a file to this machine, where it appears when it is complete. */
  async downloadFile(path: Path, file: string, options: DownloadOptions = {}): Promise<Downloaded> {
    return platform.save(this.download(path, options), file);
  }

  /**
   * Makes a URL by which anyone who has it can read (GET) or replace (PUT) a file until it expires, such as for
   * <img> or fetch of a web page. It is absolute, or on a unix socket a path of the server. Keep it as a token.
   */
  async signUrl(
    path: Path,
    options: Signalled & { readonly method?: "GET" | "PUT"; readonly expiryMs?: number; readonly maxBytes?: number } = {},
  ): Promise<SignedUrl> {
    if (this.sandbox) {
      throw new UsageError("a signed URL has no sandbox: make it by a client without one");
    }
    const { method = "GET", expiryMs, maxBytes } = options;
    const request = {
      ...pathFields(path),
      method: FileURLMethod[`FILE_URL_METHOD_${method}`],
      ...(expiryMs !== undefined && { expiry: durationOf("expiryMs", expiryMs) }),
      ...(maxBytes !== undefined && { maxBytes: BigInt(maxBytes) }),
    };
    const { url, expireTime } = await this.rpc.repeat((call) => this.rpc.stubs.files.signFileURL(request, call), options.signal);
    return { url: this.rpc.link.origin + url, expires: dateOf(expireTime) ?? new Date(0) };
  }

  /** Describes a file, following links; with sha256 the server also reads it. */
  stat(path: Path, options: Signalled & { readonly sha256?: boolean } = {}): Promise<FileInfo> {
    return this.describe(path, false, options);
  }

  /** Describes a file or, if the path is a link, the link. */
  lstat(path: Path, options: Signalled = {}): Promise<FileInfo> {
    return this.describe(path, true, options);
  }

  private async describe(path: Path, noFollow: boolean, options: Signalled & { readonly sha256?: boolean }): Promise<FileInfo> {
    const request = { ...this.on(path), noFollow, wantSha256: options.sha256 ?? false };
    const response = await this.rpc.repeat((call) => this.rpc.stubs.files.getMetadata(request, call), options.signal);
    const { metadata } = response;
    if (!metadata) {
      throw new ProtocolError(`it did not describe ${displayPath(path)}`);
    }
    return {
      type: typeName(metadata.type),
      isSymlink: metadata.isSymlink,
      size: Number(metadata.size),
      mode: metadata.mode,
      userId: metadata.userId,
      groupId: metadata.groupId,
      modifyTime: dateOf(metadata.modifyTime),
      version: metadata.version,
      linkTarget: response.linkTarget,
      sha256: response.sha256.length > 0 ? response.sha256 : undefined,
      metadata,
    };
  }

  /** Whether a path exists, following links. */
  async exists(path: Path, options: Signalled = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof Error && "reason" in error && error.reason === "PATH_NOT_FOUND") {
        return false;
      }
      throw error;
    }
  }

  /** Returns the entries of a directory, in no particular order. */
  list(path: Path, options: Signalled = {}): Promise<DirectoryEntry[]> {
    return this.rpc.repeat(async (call) => {
      const entries: DirectoryEntry[] = [];
      for await (const message of this.rpc.stubs.files.readDirectory(this.on(path), call)) {
        for (const entry of message.entries) {
          if (!isName(entry.name)) {
            throw new ProtocolError(`${JSON.stringify(entry.name)} in ${displayPath(path)} is not a valid name`);
          }
          entries.push({ name: entry.name, rawName: rawOrNone(entry.rawName), type: typeName(entry.type), targetType: typeName(entry.targetType) });
        }
      }
      return entries;
    }, options.signal);
  }

  /** Sets the permission bits of a file or directory, following links. */
  async chmod(path: Path, mode: number, options: Signalled = {}): Promise<void> {
    await this.rpc.repeat((call) => this.rpc.stubs.files.setMetadata({ ...this.on(path), permissions: mode }, call), options.signal);
  }

  /** Makes a directory. */
  async mkdir(path: Path, options: MkdirOptions = {}): Promise<void> {
    const { parents = false, mode } = options;
    const request = { ...this.on(path), recursive: parents, ...(mode !== undefined && { permissions: mode }) };
    await this.rpc[parents ? "repeat" : "once"]((call) => this.rpc.stubs.files.createDirectory(request, call), options.signal);
  }

  /**
   * Removes a file, a link or an empty directory, with recursive also its content. ignoreMissing accepts a
   * missing path.
   */
  async remove(path: Path, options: Signalled & { readonly recursive?: boolean; readonly ignoreMissing?: boolean } = {}): Promise<void> {
    const { recursive = false, ignoreMissing = false } = options;
    const request = { ...this.on(path), recursive, ignoreMissing };
    await this.rpc[ignoreMissing ? "repeat" : "once"]((call) => this.rpc.stubs.files.removePath(request, call), options.signal);
  }

  /** Renames atomically; with noReplace it fails if the destination exists. */
  async rename(source: Path, destination: Path, options: Signalled & { readonly noReplace?: boolean } = {}): Promise<void> {
    const request = { ...pairFields(source, destination), ...this.confined, noReplace: options.noReplace ?? false };
    await this.rpc.once((call) => this.rpc.stubs.files.renamePath(request, call), options.signal);
  }

  /**
   * Copies a file or a link within the server, with recursive a directory. Returns how many special files
   * were omitted.
   */
  async copy(source: Path, destination: Path, options: Signalled & { readonly recursive?: boolean } = {}): Promise<number> {
    const request = { ...pairFields(source, destination), ...this.confined, recursive: options.recursive ?? false };
    const response = await this.rpc.once((call) => this.rpc.stubs.files.copyPath(request, call), options.signal);
    return Number(response.omittedSpecialFiles);
  }

  /** Makes a symbolic link to a target. The path must not exist. */
  async symlink(target: Path, path: Path, options: Signalled = {}): Promise<void> {
    await this.rpc.once((call) => this.rpc.stubs.files.createSymlink({ ...this.on(path), ...targetFields(target) }, call), options.signal);
  }

  /** Returns the path with all symbolic links resolved. */
  async realpath(path: Path, options: Signalled = {}): Promise<Path> {
    const response = await this.rpc.repeat((call) => this.rpc.stubs.files.canonicalizePath(this.on(path), call), options.signal);
    return response.rawPath.length > 0 ? response.rawPath : response.path;
  }

  /**
   * Iterates over everything below a directory, level by level, without following links. Throws {@link
   * TruncatedError} at the end if it is incomplete. It is not resumed after a lost connection.
   */
  async *walk(path: Path, options: WalkOptions = {}): AsyncGenerator<WalkEntry, void, undefined> {
    const { maxDepth, ignore = [], metadata: wantMetadata = false, onFailed } = options;
    const request = { ...this.on(path), ignore: [...ignore], wantMetadata, ...(maxDepth !== undefined && { maxDepth }) };
    let ended = false;
    let truncated = false;
    for await (const { message } of this.rpc.stream((call) => this.rpc.stubs.files.walkDirectory(request, call), options.signal)) {
      if (message.case === "entries") {
        for (const entry of message.value.entries) {
          if (!entry.path.split("/").every(isName)) {
            throw new ProtocolError(`${JSON.stringify(entry.path)} is not a path below ${displayPath(path)}`);
          }
          const { metadata, linkTarget } = entry;
          const raw = { rawPath: rawOrNone(entry.rawPath), rawLinkTarget: rawOrNone(entry.rawLinkTarget) };
          yield { path: entry.path, type: typeName(entry.type), metadata, linkTarget, ...raw };
        }
      } else if (message.case === "error") {
        onFailed?.(message.value.path, message.value.message);
      } else if (message.case === "end") {
        ended = true;
        truncated = message.value.truncated;
      }
    }
    if (!ended) {
      throw new ProtocolError(`it ended the walk of ${displayPath(path)} without an end message`);
    }
    if (truncated) {
      throw new TruncatedError("there are more directories than the server reads at once: walk a part at a time");
    }
  }

  /** @internal For push and pull: all that walk yields. A walk that the loss of the connection ends is started over. */
  async walkAll(path: Path, options: WalkOptions): Promise<WalkEntry[]> {
    const walked = async (): Promise<WalkEntry[]> => {
      const entries = [];
      for await (const entry of this.walk(path, options)) {
        entries.push(entry);
      }
      return entries;
    };
    return this.rpc.repeat(walked, options.signal);
  }

  /**
   * Iterates over changes in a directory, until the loop ends or the directory is gone. Changes during a lost
   * connection are unknown, so it throws: start a new watch and rescan.
   */
  async *watch(path: Path, options: WatchOptions = {}): AsyncGenerator<WatchEvent, void, undefined> {
    const { recursive = false, ignore = [], settleMs } = options;
    const request = { ...this.on(path), recursive, ignore: [...ignore], ...(settleMs !== undefined && { settle: durationOf("settleMs", settleMs) }) };
    for await (const { event } of this.rpc.stream((call) => this.rpc.stubs.files.watchDirectory(request, call), options.signal)) {
      switch (event.case) {
        case "started":
        case "overflow":
          yield { type: event.case };
          break;
        case "changes":
          yield {
            type: "changes",
            changes: event.value.changes.map((change) => ({
              path: change.path,
              rawPath: rawOrNone(change.rawPath),
              kind: (WatchChangeKind[change.kind] ?? "modified").toLowerCase() as WatchChange["kind"],
              type: typeName(change.type),
            })),
          };
          break;
        case "lost":
          yield {
            type: "lost",
            path: event.value.path,
            reason: (WatchLostReason[event.value.reason] ?? "unspecified").toLowerCase(),
            message: event.value.message,
          };
          break;
      }
    }
    throw new ProtocolError(`it ended the watch of ${displayPath(path)} without a reason`);
  }

  private on(path: Path): { path: string; rawPath: Uint8Array; sandbox?: SandboxPolicy } {
    return { ...pathFields(path), ...this.confined };
  }

  private get confined(): { sandbox?: SandboxPolicy } {
    return this.sandbox ? { sandbox: this.sandbox } : {};
  }
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true, fatal: true }).decode(bytes);
}

function digestOf(bytes: Uint8Array): Uint8Array {
  const digest = platform.newDigest();
  digest.update(bytes);
  return digest.digest();
}

function rawOrNone(raw: Uint8Array): Uint8Array | undefined {
  return raw.length > 0 ? raw : undefined;
}

function typeName(type: TypeNumber): FileType {
  const name = TypeNumber[type];
  if (name === undefined || type === TypeNumber.UNSPECIFIED) {
    return "unknown";
  }
  return type === TypeNumber.REGULAR ? "file" : (name.toLowerCase() as FileType);
}
