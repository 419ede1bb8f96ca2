import { platform } from "#platform";
import { equal } from "./bytes.js";
import { ChangedError, DigestError, makeError, ProtocolError } from "./errors.js";
import type { FileMetadata } from "./gen/execwire/v1/filesystem_metadata_pb.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import { type Path, pathFields, displayPath } from "./paths.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";

/** Options that select the part of a file to download; by default the whole file. */
export interface DownloadOptions {
  /** Where to begin, in bytes. */
  readonly offset?: number;
  /** How many bytes to download at most. */
  readonly length?: number;
  /** The required version of the file, from earlier metadata. */
  readonly ifVersion?: string;
  /** Called once, before the first byte, with the metadata of the file. */
  readonly onHead?: (metadata: FileMetadata | undefined) => void;
  /** Cancels the download. */
  readonly signal?: AbortSignal;
}

/** The result of a download, returned by its iterator. */
export interface Downloaded {
  /** How many bytes were downloaded. */
  readonly size: number;
  /** The digest of the downloaded content. */
  readonly sha256: Uint8Array;
  /** The metadata of the file at the start. */
  readonly metadata: FileMetadata | undefined;
}

/**
 * Downloads a file, or a part of it, in pieces. A lost connection is resumed with the same version of the
 * file; if the file has changed it throws {@link ChangedError}, and {@link DigestError} if the received
 * content is wrong. A slow reader blocks the download.
 */
export async function* download(
  rpc: Rpc,
  path: Path,
  options: DownloadOptions,
  sandbox: SandboxPolicy | undefined,
): AsyncGenerator<Uint8Array, Downloaded, undefined> {
  const name = displayPath(path);
  const whole = platform.newDigest();
  const attempts = new Attempts();
  let metadata: FileMetadata | undefined;
  let size = 0;
  let began = false;
  for (;;) {
    try {
      const part = platform.newDigest();
      let ended = false;
      const request = {
        ...pathFields(path),
        offset: BigInt((options.offset ?? 0) + size),
        wantSha256: true,
        ifVersion: size > 0 ? (metadata?.version ?? "") : (options.ifVersion ?? ""),
        ...(options.length !== undefined && { length: BigInt(options.length - size) }),
        ...(sandbox && { sandbox }),
      };
      for await (const { message } of rpc.stream((call) => rpc.stubs.files.downloadFile(request, call), options.signal)) {
        if (message.case === "head") {
          if (!began) {
            began = true;
            metadata = message.value.metadata;
            options.onHead?.(metadata);
          }
        } else if (message.case === "data") {
          const data = message.value;
          if (!began || ended || (options.length !== undefined && size + data.length > options.length)) {
            throw new ProtocolError(`it sent data of ${name} that it was not asked for`);
          }
          part.update(data);
          whole.update(data);
          size += data.length;
          attempts.progress();
          attempts.lostAt = undefined;
          yield data;
        } else if (message.case === "end") {
          ended = true;
          const { sha256, changed } = message.value;
          if (!equal(part.digest(), sha256)) {
            throw new DigestError(name);
          }
          if (changed) {
            throw makeError("ABORTED", `${name} was changed while it was read`, {
              reason: "FILE_CHANGED",
              metadata: {},
              fields: [],
              resource: name,
              retryAfterMs: 0,
            }) as ChangedError;
          }
        }
      }
      if (!ended) {
        throw new ProtocolError(`it did not confirm that ${name} is complete`);
      }
      return { size, sha256: whole.digest(), metadata };
    } catch (error) {
      await rpc.again(attempts, error, options.signal);
    }
  }
}
