import type { StartOptions } from "./command.js";
import type { Downloaded } from "./download.js";
import type { Exit } from "./exit.js";
import type { Forward, ForwardOptions } from "./forward.js";
import type { SandboxPolicy } from "./gen/execwire/v1/sandbox_pb.js";
import type { InteractiveOptions } from "./interactive.js";
import type { Link } from "./link.js";
import type { ConnectOptions } from "./options.js";
import type { Path } from "./paths.js";
import type { Process } from "./process.js";
import type { Rpc } from "./rpc.js";
import type { ProcessIO, ProcessStreams } from "./streams.js";
import type { RemoteFiles, Transferred, TransferOptions } from "./tree.js";
import type { Content, Uploaded, UploadOptions } from "./upload.js";

/**
 * What Node.js and browsers do in different ways. "#platform" in package.json selects node.ts or, in a bundle for
 * browsers, browser.ts; nothing else imports modules of Node.js.
 */
export interface Platform {
  /** Opens the link to a server, and starts the program that it needs. */
  open(url: string, options: OpenOptions): Promise<Opened>;
  /** Begins a SHA-256. */
  newDigest(): Digest;
  upload(rpc: Rpc, path: Path, content: Content, options: UploadOptions, sandbox: SandboxPolicy | undefined): Promise<Uploaded>;
  /** Writes a download to a file of this machine, where it appears when it is complete. */
  save(pieces: AsyncGenerator<Uint8Array, Downloaded, undefined>, file: string): Promise<Downloaded>;
  /** Copy trees between this machine and the server. */
  push(files: RemoteFiles, local: string, path: string, options: TransferOptions): Promise<Transferred>;
  pull(files: RemoteFiles, path: string, local: string, options: TransferOptions): Promise<Transferred>;
  streams(process: ProcessIO): Pick<ProcessStreams, "output" | "input">;
  interactive(spawn: (options: StartOptions) => Promise<Process>, options: InteractiveOptions): Promise<Exit>;
  forward(rpc: Rpc, port: number, options: ForwardOptions): Promise<Forward>;
}

/** Options of a connection, and arguments of a server that is launched for it. */
export type OpenOptions = ConnectOptions & { readonly args?: readonly string[] };

/** A link, and the program execwire that was started for it. */
export interface Opened {
  readonly link: Link;
  readonly helper?: {
    /** Resolves when it has ended, with a description. */
    readonly ended: Promise<string>;
    close(): Promise<void>;
  };
}

/** A SHA-256 of what was given to update. */
export interface Digest {
  update(data: Uint8Array): unknown;
  digest(): Uint8Array;
}
