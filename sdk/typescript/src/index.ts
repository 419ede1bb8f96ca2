/**
 * Start and control processes, and access files, of another machine through an Execwire server.
 *
 * @packageDocumentation
 */
export { relayUrl } from "./address.js";
export { type AttachOptions, Client, type RunCommandOptions, type StartDetachedOptions } from "./client.js";
export type { CommandLine, CommandOptions, LimitedResourceName, ResourceLimit, StartOptions, TerminalSize } from "./command.js";
export type { CommunicateOptions, Input } from "./communicate.js";
export { connect, launch } from "./connect.js";
export type { TlsFiles } from "./credentials.js";
export type { Downloaded, DownloadOptions } from "./download.js";
export * from "./errors.js";
export type { ClosedEvent, ExitedEvent, GapCause, GapEvent, OutputEvent, ProcessEvent, StreamName } from "./events.js";
export { type Completed, describeExit, type Exit, type ExitCause, type Output } from "./exit.js";
export {
  type DirectoryEntry,
  type FileInfo,
  FileSystem,
  type FileType,
  type MkdirOptions,
  type SignedUrl,
  type WalkEntry,
  type WalkOptions,
  type WatchChange,
  type WatchEvent,
  type WatchOptions,
} from "./files.js";
export type { Forward, ForwardOptions } from "./forward.js";
export type { InteractiveOptions, KeySource, Screen } from "./interactive.js";
export type { ConnectOptions } from "./options.js";
export type { Path } from "./paths.js";
export type { ListeningPort, PortChange } from "./ports.js";
export { Process, type Terminated, type TerminateOptions } from "./process.js";
export type { RecordingOptions } from "./recording.js";
export type { Stubs } from "./rpc.js";
export { sandbox, type SandboxOptions } from "./sandbox.js";
export type { SignalName } from "./signals.js";
export type { Transferred, TransferOptions } from "./tree.js";
export type { Content, LocalFile, Uploaded, UploadOptions } from "./upload.js";
export type { Condition, Match, Waited } from "./wait.js";
