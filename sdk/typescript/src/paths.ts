import { UsageError } from "./errors.js";

/** An absolute path of the server's machine: text, or bytes if it is not UTF-8. */
export type Path = string | Uint8Array;

/** The two request fields of a path. */
export function pathFields(path: Path): { path: string; rawPath: Uint8Array } {
  const { text, raw } = split(path);
  return { path: text, rawPath: raw };
}

/** The request fields of a source and a destination. */
export function pairFields(source: Path, destination: Path): {
  sourcePath: string;
  rawSourcePath: Uint8Array;
  destinationPath: string;
  rawDestinationPath: Uint8Array;
} {
  const from = split(source);
  const to = split(destination);
  return { sourcePath: from.text, rawSourcePath: from.raw, destinationPath: to.text, rawDestinationPath: to.raw };
}

/** The request fields of a link target. */
export function targetFields(target: Path): { target: string; rawTarget: Uint8Array } {
  const { text, raw } = split(target);
  return { target: text, rawTarget: raw };
}

/** A path for messages. */
export function displayPath(path: Path): string {
  return typeof path === "string" ? path : new TextDecoder().decode(path);
}

/** Whether a name is a valid directory entry. */
export function isName(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
}

function split(path: Path): { text: string; raw: Uint8Array } {
  if (path.length === 0) {
    throw new UsageError("the path is empty: paths of the server are absolute");
  }
  return typeof path === "string" ? { text: path, raw: new Uint8Array() } : { text: "", raw: path };
}
