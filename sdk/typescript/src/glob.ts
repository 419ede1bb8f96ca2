import { bytesOf, concat } from "./bytes.js";
import { ExecwireError, UsageError } from "./errors.js";
import { displayPath, type Path } from "./paths.js";
import { isPattern, patternRegExp } from "./pattern.js";
import { Slots } from "./queue.js";

/** What a glob needs of the files of a server. */
interface Listing {
  list(path: Path, options: { signal?: AbortSignal }): Promise<readonly Named[]>;
  walk(path: Path, options: { signal?: AbortSignal }): AsyncIterable<{ path: string; rawPath: Uint8Array | undefined; type: string }>;
  lstat(path: Path, options: { signal?: AbortSignal }): Promise<unknown>;
}

interface Named {
  readonly name: string;
  readonly rawName: Uint8Array | undefined;
  readonly targetType: string;
}

/** How many directories are listed at once. */
const parallel = 16;

/**
 * Returns the existing paths that match an absolute pattern, sorted, as a shell does with globstar: wildcards do not
 * match a leading dot, and "**" does not follow links. Directories that cannot be read have no matches.
 */
export async function glob(files: Listing, pattern: string, signal: AbortSignal | undefined): Promise<Path[]> {
  if (!pattern.startsWith("/")) {
    throw new UsageError(`the pattern ${JSON.stringify(pattern)} is not absolute: begin with /`);
  }
  const options = signal ? { signal } : {};
  const slots = new Slots(parallel);
  let found: Path[] = ["/"];
  const components = pattern.split("/").filter((component) => component !== "");
  for (const [i, component] of components.entries()) {
    const last = i === components.length - 1;
    const expand = async (directory: Path): Promise<Path[]> => {
      if (component === "**") {
        return walked(files, directory, last, options);
      }
      if (!isPattern(component)) {
        const path = join(directory, component);
        return last ? files.lstat(path, options).then(() => [path]) : [path];
      }
      const regExp = patternRegExp(component);
      const entries = await files.list(directory, options);
      return entries
        .filter((entry) => regExp.test(entry.name) && isShown(entry.name, component) && (last || entry.targetType === "directory"))
        .map((entry) => join(directory, entry.rawName ?? entry.name));
    };
    const next = await Promise.all(found.map((path) => slots.run(() => expand(path).catch(nothing), signal)));
    found = [...new Map(next.flat().map((path) => [displayPath(path), path])).values()]; // two "**" find one path twice
  }
  return found.sort((a, b) => (displayPath(a) < displayPath(b) ? -1 : 1));
}

/** Everything below a directory, or the directory and the directories below it. */
async function walked(files: Listing, directory: Path, everything: boolean, options: { signal?: AbortSignal }): Promise<Path[]> {
  const found = everything ? [] : [directory];
  for await (const { path, rawPath, type } of files.walk(directory, options)) {
    if ((everything || type === "directory") && path.split("/").every((name) => isShown(name, ""))) {
      found.push(join(directory, rawPath ?? path));
    }
  }
  return found;
}

function isShown(name: string, component: string): boolean {
  return !name.startsWith(".") || component.startsWith(".");
}

/** No paths for an error that says that there are none, or none that can be seen. */
function nothing(error: unknown): Path[] {
  if (error instanceof ExecwireError && ["PATH_NOT_FOUND", "NOT_A_DIRECTORY", "PERMISSION_DENIED"].includes(error.reason)) {
    return [];
  }
  throw error;
}

function join(directory: Path, name: Path): Path {
  const slash = displayPath(directory) === "/" ? "" : "/";
  return typeof directory === "string" && typeof name === "string" ? `${directory}${slash}${name}` : concat([bytesOf(directory), bytesOf(slash), bytesOf(name)]);
}
