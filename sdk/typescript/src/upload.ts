import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { bytesOf } from "./bytes.js";
import { ClientError, ExecwireError, messageOf, ProtocolError, ReadError } from "./errors.js";
import type { FileMetadata } from "./gen/execwire/v1/filesystem_metadata_pb.js";
import { type UploadFileRequestSchema, type UploadHeadSchema, UploadMode } from "./gen/execwire/v1/filesystem_transfer_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { type Path, pathFields, displayPath } from "./paths.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";
import { abortable } from "./time.js";

/** The content of a file: complete, in pieces, or a file of this machine. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array> | LocalFile;

/** A file of this machine. */
export interface LocalFile {
  /** Its path. */
  readonly file: string;
}

/** Options of {@link FileSystem.upload}. By default an existing file is replaced atomically. */
export interface UploadOptions {
  /** The permission bits. Absent keeps those of the replaced file. */
  readonly mode?: number;
  /** The modification time of the file. */
  readonly modifyTime?: Date;
  /** The SHA-256 that the existing file must have; otherwise the upload fails with CONTENT_NOT_MATCHED. */
  readonly ifMatchSha256?: Uint8Array;
  /** Fails with PATH_ALREADY_EXISTS if the path exists. */
  readonly ifMissing?: boolean;
  /** Writes content and name to disk before it resolves. */
  readonly sync?: boolean;
  /** Called after each piece with the number of bytes sent. What is sent again after a lost connection is not reported again. */
  readonly onProgress?: (sentBytes: number) => void;
  /** Aborts the upload. */
  readonly signal?: AbortSignal;
}

/** The result of an upload. */
export interface Uploaded {
  /** The size of the file in bytes. */
  readonly size: number;
  /** The digest of the content, verified by the server. */
  readonly sha256: Uint8Array;
  /** The metadata of the new file. */
  readonly metadata: FileMetadata | undefined;
}

/** Slightly less than 32 KiB, a buffer size of gRPC. */
const pieceBytes = 32_700;
/** How much is sent between requests for the received size, if unconfirmed data must be buffered. */
const confirmBytes = 8 << 20;
/** How long the server has to drop an upload. */
const dropTimeoutMs = 1_000;
/** Limits how often an upload starts over because the server lost its data or has different content. */
const maxRestarts = 3;

/**
 * Uploads a file. A lost connection is resumed from what the server has received. On an interruption, the
 * server drops the data before this rejects, or has not answered for one second.
 */
export function upload(rpc: Rpc, path: Path, content: Content, options: UploadOptions, sandbox: SandboxPolicy | undefined): Promise<Uploaded> {
  const one = new Upload(rpc, path, content, options, sandbox);
  return rpc.own(() => uploadOrDrop(one), options.signal);
}

async function uploadOrDrop(one: Upload): Promise<Uploaded> {
  try {
    return await one.run();
  } catch (error) {
    if (one.interrupted) {
      await one.drop();
    }
    throw error;
  } finally {
    one.stop();
  }
}

class Upload {
  private readonly id = crypto.randomUUID();
  private readonly attempts = new Attempts();
  private readonly source: Source;
  private readonly name: string;
  private hash: Hash = createHash("sha256");
  private hashed = 0;
  /** What onProgress was last called with. */
  private reported = 0;
  private known = 0;
  private asked = 0;
  private complete = false;
  private restarts = 0;
  /** The number of the attempt that reads the content. */
  private reader = 0;
  /** Whether the server may have data of it. */
  private begun = false;
  /** A local failure, for which retries are useless. */
  private localFailure: { readonly error: unknown } | undefined;

  constructor(
    private readonly rpc: Rpc,
    private readonly path: Path,
    content: Content,
    private readonly options: UploadOptions,
    private readonly sandbox: SandboxPolicy | undefined,
  ) {
    this.source = new Source(content);
    this.name = displayPath(path);
  }

  stop(): void {
    this.source.stop();
  }

  /** Whether it was ended locally: by its caller, its client or its content. */
  get interrupted(): boolean {
    return this.options.signal?.aborted || this.rpc.lifetime.aborted || this.localFailure !== undefined;
  }

  /**
   * Makes the server drop data that no other call resumes: otherwise it keeps it for upload_retention. The
   * client may be closed. It gives up if the server does not answer in time.
   */
  async drop(): Promise<void> {
    if (!this.begun) {
      return;
    }
    // An upload that begins anew drops the earlier one, and one with a wrong digest is dropped itself.
    const head = { ...pathFields(this.path), mode: UploadMode.REPLACE, uploadId: this.id, ...(this.sandbox && { sandbox: this.sandbox }) };
    async function* requests(): AsyncGenerator<MessageInitShape<typeof UploadFileRequestSchema>> {
      yield { message: { case: "head", value: head } };
      yield { message: { case: "end", value: { sha256: new Uint8Array(32) } } };
    }
    // Not AbortSignal.timeout: the process must not end before close has resolved.
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(new ClientError(`failed to drop the upload of ${this.name} in time`)), dropTimeoutMs);
    try {
      const { signal } = over;
      await abortable(this.rpc.stubs.files.uploadFile(requests(), { signal }), signal);
    } catch {
      return; // the server rejects the digest, or drops the data after its retention
    } finally {
      clearTimeout(timer);
    }
  }

  async run(): Promise<Uploaded> {
    for (let first = true; ; first = false) {
      let offset = 0;
      try {
        offset = first ? 0 : await this.received();
        return await this.attempt(offset);
      } catch (error) {
        this.reader++; // a read of the lost attempt may end at any time
        if (this.localFailure) {
          throw this.localFailure.error;
        }
        if (offset > this.known) {
          this.known = offset;
          this.attempts.progress();
          this.attempts.lostAt = undefined;
        }
        if (this.mustRestart(error, offset)) {
          continue;
        }
        await this.rpc.again(this.attempts, error, this.options.signal);
      }
    }
  }

  /** Whether the received data is gone, or of different content. */
  private mustRestart(error: unknown, offset: number): boolean {
    const reason = error instanceof ExecwireError ? error.reason : "";
    const useless = reason === "UPLOAD_NOT_FOUND" || reason === "DIGEST_MISMATCH";
    if (offset === 0 || !useless || this.restarts === maxRestarts) {
      return false;
    }
    this.restarts++;
    this.known = this.hashed = this.asked = 0;
    this.hash = createHash("sha256");
    this.complete = false;
    return true;
  }

  private async received(): Promise<number> {
    try {
      const upload = await this.rpc.call((call) => this.rpc.stubs.files.getUpload({ uploadId: this.id }, call), this.options.signal);
      return Number(upload.receivedBytes);
    } catch (error) {
      if (error instanceof ExecwireError && error.reason === "UPLOAD_NOT_FOUND") {
        return 0;
      }
      throw error;
    }
  }

  private async attempt(offset: number): Promise<Uploaded> {
    if (!(await this.source.rewind(Math.min(offset, this.hashed)))) {
      throw new ClientError(`failed to resume the upload of ${this.name}: the server has lost the received data, and the content cannot be read from its start again`);
    }
    const attempt = this.reader;
    const response = await this.rpc.call((call) => {
      this.begun = true;
      return this.rpc.stubs.files.uploadFile(
        this.requests(offset, () => attempt !== this.reader),
        call,
      );
    }, this.options.signal);
    const size = Number(response.size);
    const sha256 = this.hash.copy().digest();
    if (!this.complete || size !== this.hashed || !sha256.equals(response.sha256)) {
      throw new ProtocolError(`it completed ${this.name} after ${size} bytes`);
    }
    return { size, sha256, metadata: response.metadata };
  }

  /** The requests of an attempt, which a lost one does not go on with. */
  private async *requests(offset: number, lost: () => boolean): AsyncGenerator<MessageInitShape<typeof UploadFileRequestSchema>> {
    yield { message: { case: "head", value: this.head(offset) } };
    for (let position = Math.min(offset, this.hashed); ; ) {
      const piece = await this.read(lost);
      if (lost()) {
        return;
      }
      if (!piece) {
        break;
      }
      const end = position + piece.length;
      if (end > this.hashed) {
        this.hash.update(piece.subarray(Math.max(0, this.hashed - position)));
        this.hashed = end;
      }
      if (end > offset) {
        yield { message: { case: "data", value: piece.subarray(Math.max(0, offset - position)) } };
      }
      position = end;
      this.reportProgress(position);
      await this.confirm(position);
    }
    this.complete = true;
    yield { message: { case: "end", value: { sha256: this.hash.copy().digest() } } };
  }

  private async read(lost: () => boolean): Promise<Uint8Array | undefined> {
    try {
      return await this.source.next(lost);
    } catch (cause) {
      const error = new ReadError(`failed to read the content for ${this.name}: ${messageOf(cause)}`, { cause });
      this.localFailure = { error };
      throw error;
    }
  }

  private reportProgress(position: number): void {
    if (position <= this.reported) {
      return;
    }
    this.reported = position;
    try {
      this.options.onProgress?.(position);
    } catch (error) {
      this.localFailure = { error };
      throw error;
    }
  }

  /** Drops buffered content that the server has. If the request fails, the stream fails too. */
  private async confirm(position: number): Promise<void> {
    if (this.source.keptBytes < confirmBytes || position < this.asked + confirmBytes) {
      return;
    }
    this.asked = position;
    this.source.forget(await this.received().catch(() => 0));
  }

  private head(offset: number): MessageInitShape<typeof UploadHeadSchema> {
    const { mode, modifyTime, ifMatchSha256, ifMissing, sync } = this.options;
    return {
      ...pathFields(this.path),
      mode: UploadMode.REPLACE,
      uploadId: this.id,
      offset: BigInt(offset),
      ifMissing: ifMissing ?? false,
      sync: sync ?? false,
      ...(this.sandbox && { sandbox: this.sandbox }),
      ...(mode !== undefined && { permissions: mode }),
      ...(ifMatchSha256 && { ifMatchSha256 }),
      ...(modifyTime && {
        modifyTime: { seconds: BigInt(Math.floor(modifyTime.getTime() / 1000)), nanos: (((modifyTime.getTime() % 1000) + 1000) % 1000) * 1e6 },
      }),
    };
  }
}

/** Content in pieces. If it can be read only once, it is buffered until it is forgotten. */
class Source {
  private readonly reopen: ((from: number) => AsyncIterator<Uint8Array> | Iterator<Uint8Array>) | undefined;
  private iterator: AsyncIterator<Uint8Array> | Iterator<Uint8Array> | undefined;
  /** Read beyond the current piece. */
  private rest: Uint8Array = new Uint8Array();
  private kept: Uint8Array[] = [];
  private keptFrom = 0;
  keptBytes = 0;
  /** How many buffered pieces, the last ones, have yet to be returned. */
  private replay = 0;
  /** The read in progress. One that a lost attempt began is for the next attempt. */
  private filling: Promise<boolean> | undefined;

  constructor(content: Content) {
    if (typeof content === "string" || content instanceof Uint8Array) {
      const bytes = bytesOf(content);
      this.reopen = (from) => [bytes.subarray(from)][Symbol.iterator]();
    } else if ("file" in content) {
      const { file } = content;
      this.reopen = (from) => readFile(file, from);
    } else {
      this.iterator = Symbol.asyncIterator in content ? content[Symbol.asyncIterator]() : content[Symbol.iterator]();
    }
  }

  /** Continues at an earlier offset; false if that is not buffered. */
  async rewind(offset: number): Promise<boolean> {
    if (this.reopen) {
      this.stop();
      this.rest = new Uint8Array();
      this.kept = [];
      this.replay = 0;
      this.filling = undefined;
      this.iterator = this.reopen(offset);
      return true;
    }
    if (offset < this.keptFrom) {
      return false;
    }
    this.forget(offset);
    this.replay = this.kept.length;
    if (this.keptFrom < offset) {
      const [first = new Uint8Array()] = this.kept;
      this.kept[0] = first.subarray(offset - this.keptFrom);
      this.keptBytes -= offset - this.keptFrom;
      this.keptFrom = offset;
    }
    return true;
  }

  /** Drops whole pieces before an offset. */
  forget(offset: number): void {
    for (let first = this.kept[0]; first && this.keptFrom + first.length <= offset; first = this.kept[0]) {
      this.kept.shift();
      this.keptFrom += first.length;
      this.keptBytes -= first.length;
      this.replay = Math.min(this.replay, this.kept.length);
    }
  }

  /** Returns the next piece; undefined at the end, and for an attempt that is lost. */
  async next(lost: () => boolean): Promise<Uint8Array | undefined> {
    while (!lost() && this.replay === 0) {
      const filling = (this.filling ??= this.fill());
      const more = await filling;
      if (this.filling === filling) {
        this.filling = undefined;
      }
      if (!more) {
        return undefined;
      }
    }
    if (lost()) {
      return undefined;
    }
    const piece = this.kept[this.kept.length - this.replay--];
    if (this.reopen) {
      this.kept = [];
    }
    return piece;
  }

  /** Reads into the buffer, at most a piece; false at the end. */
  private async fill(): Promise<boolean> {
    const iterator = this.iterator;
    if (this.rest.length === 0) {
      const read = await iterator?.next();
      if (iterator !== this.iterator) {
        return true; // it was opened again
      }
      if (!read || read.done) {
        return false;
      }
      this.rest = read.value;
    }
    let piece = this.rest.subarray(0, pieceBytes);
    this.rest = this.rest.subarray(pieceBytes);
    if (piece.length === 0) {
      return true;
    }
    if (!this.reopen) {
      piece = new Uint8Array(piece); // the source may reuse its memory
      this.keptBytes += piece.length;
    }
    this.kept.push(piece);
    this.replay++;
    return true;
  }

  stop(): void {
    void Promise.resolve(this.iterator?.return?.()).catch(() => undefined); // there is no caller left
  }
}

/** Opens the file for the first piece: before that there is no one to report an error to, or to close it. */
async function* readFile(file: string, start: number): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file, { start, highWaterMark: 8 * pieceBytes }) as AsyncIterable<Uint8Array>;
}
