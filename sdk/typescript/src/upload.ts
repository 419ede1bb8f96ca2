import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { ClientError, ExecwireError, messageOf, ProtocolError } from "./errors.js";
import type { FileMetadata } from "./gen/execwire/v1/filesystem_metadata_pb.js";
import { type UploadFileRequestSchema, type UploadHeadSchema, UploadMode } from "./gen/execwire/v1/filesystem_transfer_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { type Path, pathFields, shownPath } from "./paths.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";
import { abortable } from "./time.js";

/** What a file is to have: all of it, pieces of it, or a file of this machine. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array> | { readonly file: string };

/** How a file is uploaded. By default it takes the place of what is there in one step, when it is whole. */
export interface UploadOptions {
  /** The permission bits of the file. Absent keeps those of the file that is replaced. */
  readonly permissions?: number;
  /** The time of the last change that the file gets. */
  readonly modifyTime?: Date;
  /** The SHA-256 that the file has to have now, else it fails with CONTENT_NOT_MATCHED. */
  readonly ifMatchSha256?: Uint8Array;
  /** Fails with PATH_ALREADY_EXISTS if anything is there. */
  readonly ifMissing?: boolean;
  /** Has content and name on the disk first. */
  readonly sync?: boolean;
  /** Called after each piece with how many bytes were sent; after a lost connection that can be less than before. */
  readonly onProgress?: (sentBytes: number) => void;
  readonly signal?: AbortSignal;
}

/** A file that was uploaded. */
export interface Uploaded {
  readonly size: number;
  /** The digest of its content, which the server has checked. */
  readonly sha256: Uint8Array;
  /** What the file is now. */
  readonly metadata: FileMetadata | undefined;
}

/** What was to be uploaded could not be read. */
export class ReadError extends ClientError {}

/** A little less than 32 KiB, of which gRPC has buffers. */
const pieceBytes = 32_700;
/** How much is sent before the server is asked what it has, where what it has not is kept. */
const confirmBytes = 8 << 20;
/** How long the server has to drop an upload. */
const dropWithinMs = 1_000;
/** How often an upload begins again because the server lost what it had, or had it of something else. */
const mostRestarts = 3;

/**
 * Uploads a file. A lost connection is resumed, from what the server has received. When it is
 * interrupted, the server drops that before this rejects, or has not answered for a second.
 */
export function upload(rpc: Rpc, path: Path, content: Content, options: UploadOptions, sandbox: SandboxPolicy | undefined): Promise<Uploaded> {
  return rpc.own(uploadOrDrop(new Upload(rpc, path, content, options, sandbox)));
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
  private known = 0;
  private asked = 0;
  private complete = false;
  private restarts = 0;
  /** Whether the server may have something of it. */
  private begun = false;
  /** What failed at this side, which no other attempt mends. */
  private ownFailure: { readonly error: unknown } | undefined;

  constructor(
    private readonly rpc: Rpc,
    private readonly path: Path,
    content: Content,
    private readonly options: UploadOptions,
    private readonly sandbox: SandboxPolicy | undefined,
  ) {
    this.source = new Source(content);
    this.name = shownPath(path);
  }

  stop(): void {
    this.source.stop();
  }

  /** Whether this side ended it: its caller, its client or its content. */
  get interrupted(): boolean {
    return this.options.signal?.aborted || this.rpc.lifetime.aborted || this.ownFailure !== undefined;
  }

  /**
   * Has the server drop what no other call goes on with: it would keep it until upload_retention
   * is over. The client may be closed. If the server does not answer in time, this gives up.
   */
  async drop(): Promise<void> {
    if (!this.begun) {
      return;
    }
    // A stream that begins anew drops what there was, and one that ends with a digest
    // that it does not have is dropped itself.
    const head = { ...pathFields(this.path), mode: UploadMode.REPLACE, uploadId: this.id, ...(this.sandbox && { sandbox: this.sandbox }) };
    async function* requests(): AsyncGenerator<MessageInitShape<typeof UploadFileRequestSchema>> {
      yield { message: { case: "head", value: head } };
      yield { message: { case: "end", value: { sha256: new Uint8Array(32) } } };
    }
    // Not AbortSignal.timeout: the process must not end before close has resolved.
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(new ClientError(`failed to drop the upload of ${this.name} in time`)), dropWithinMs);
    try {
      const { signal } = over;
      await abortable(this.rpc.stubs.files.uploadFile(requests(), { signal }), signal);
    } catch {
      return; // the server refuses the digest, or drops what it has when its retention is over
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
        if (this.ownFailure) {
          throw this.ownFailure.error;
        }
        if (offset > this.known) {
          this.known = offset;
          this.attempts.progress();
          this.attempts.lostAt = undefined;
        }
        if (this.beginsAgain(error, offset)) {
          continue;
        }
        await this.rpc.again(this.attempts, error, this.options.signal);
      }
    }
  }

  /** Whether what the server had received is gone, or was of another content. */
  private beginsAgain(error: unknown, offset: number): boolean {
    const reason = error instanceof ExecwireError ? error.reason : "";
    const useless = reason === "UPLOAD_NOT_FOUND" || reason === "DIGEST_MISMATCH";
    if (offset === 0 || !useless || this.restarts === mostRestarts) {
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
      throw new ClientError(`failed to go on with the upload of ${this.name}: the server has lost what it had, and the content cannot be read from its start again`);
    }
    const response = await this.rpc.call((call) => {
      this.begun = true;
      return this.rpc.stubs.files.uploadFile(this.requests(offset), call);
    }, this.options.signal);
    const size = Number(response.size);
    const sha256 = this.hash.copy().digest();
    if (!this.complete || size !== this.hashed || !sha256.equals(response.sha256)) {
      throw new ProtocolError(`it has taken ${size} bytes for the whole of ${this.name}`);
    }
    return { size, sha256, metadata: response.metadata };
  }

  private async *requests(offset: number): AsyncGenerator<MessageInitShape<typeof UploadFileRequestSchema>> {
    yield { message: { case: "head", value: this.head(offset) } };
    for (let position = Math.min(offset, this.hashed); ; ) {
      const piece = await this.read();
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
      this.tell(position);
      await this.confirm(position);
    }
    this.complete = true;
    yield { message: { case: "end", value: { sha256: this.hash.copy().digest() } } };
  }

  private async read(): Promise<Uint8Array | undefined> {
    try {
      return await this.source.next();
    } catch (cause) {
      const error = new ReadError(`failed to read what ${this.name} is to have: ${messageOf(cause)}`, { cause });
      this.ownFailure = { error };
      throw error;
    }
  }

  private tell(position: number): void {
    try {
      this.options.onProgress?.(position);
    } catch (error) {
      this.ownFailure = { error };
      throw error;
    }
  }

  /** Lets go of what is kept and the server has. If it cannot be asked, the stream fails too. */
  private async confirm(position: number): Promise<void> {
    if (this.source.keptBytes < confirmBytes || position < this.asked + confirmBytes) {
      return;
    }
    this.asked = position;
    this.source.forget(await this.received().catch(() => 0));
  }

  private head(offset: number): MessageInitShape<typeof UploadHeadSchema> {
    const { permissions, modifyTime, ifMatchSha256, ifMissing, sync } = this.options;
    return {
      ...pathFields(this.path),
      mode: UploadMode.REPLACE,
      uploadId: this.id,
      offset: BigInt(offset),
      ifMissing: ifMissing ?? false,
      sync: sync ?? false,
      ...(this.sandbox && { sandbox: this.sandbox }),
      ...(permissions !== undefined && { permissions }),
      ...(ifMatchSha256 && { ifMatchSha256 }),
      ...(modifyTime && {
        modifyTime: { seconds: BigInt(Math.floor(modifyTime.getTime() / 1000)), nanos: (((modifyTime.getTime() % 1000) + 1000) % 1000) * 1e6 },
      }),
    };
  }
}

/** Content in pieces. What can be read once only is kept until it is forgotten. */
class Source {
  private readonly reopen: ((from: number) => AsyncIterator<Uint8Array> | Iterator<Uint8Array>) | undefined;
  private iterator: AsyncIterator<Uint8Array> | Iterator<Uint8Array> | undefined;
  /** What was read beyond a piece. */
  private rest: Uint8Array = new Uint8Array();
  private kept: Uint8Array[] = [];
  private keptFrom = 0;
  keptBytes = 0;
  /** How many of what is kept are to be had again. */
  private replay = 0;

  constructor(content: Content) {
    if (typeof content === "string" || content instanceof Uint8Array) {
      const bytes = typeof content === "string" ? Buffer.from(content) : content;
      this.reopen = (from) => [bytes.subarray(from)][Symbol.iterator]();
    } else if ("file" in content) {
      const { file } = content;
      this.reopen = (from) => readFile(file, from);
    } else {
      this.iterator = Symbol.asyncIterator in content ? content[Symbol.asyncIterator]() : content[Symbol.iterator]();
    }
  }

  /** Goes back to an offset; false if what is there is not kept. */
  async rewind(offset: number): Promise<boolean> {
    if (this.reopen) {
      this.stop();
      this.rest = new Uint8Array();
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

  /** Lets go of whole pieces before an offset. */
  forget(offset: number): void {
    for (let first = this.kept[0]; first && this.keptFrom + first.length <= offset; first = this.kept[0]) {
      this.kept.shift();
      this.keptFrom += first.length;
      this.keptBytes -= first.length;
      this.replay = Math.max(0, this.replay - 1);
    }
  }

  async next(): Promise<Uint8Array | undefined> {
    if (this.replay > 0) {
      return this.kept[this.kept.length - this.replay--];
    }
    while (this.rest.length === 0) {
      const read = await this.iterator?.next();
      if (!read || read.done) {
        return undefined;
      }
      this.rest = read.value;
    }
    let piece = this.rest.subarray(0, pieceBytes);
    this.rest = this.rest.subarray(pieceBytes);
    if (!this.reopen) {
      piece = new Uint8Array(piece); // whoever gave it may use its memory again
      this.kept.push(piece);
      this.keptBytes += piece.length;
    }
    return piece;
  }

  stop(): void {
    void Promise.resolve(this.iterator?.return?.()).catch(() => undefined); // there is nobody left to tell
  }
}

/** Opens a file when it is first asked for a piece: until then nobody could be told that it failed, and nobody would close it. */
async function* readFile(file: string, start: number): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file, { start, highWaterMark: 8 * pieceBytes }) as AsyncIterable<Uint8Array>;
}
