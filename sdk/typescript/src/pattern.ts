import { UsageError } from "./errors.js";

/** Whether a component of a path is a pattern. */
export function isPattern(component: string): boolean {
  return /[*?[\\]/.test(component);
}

/** The regular expression of names that match a pattern: "*", "?", "[a-z]", "[!a-z]", and "\" before a character. */
export function patternRegExp(pattern: string): RegExp {
  return new RegExp(`^${nameSource(pattern, pattern)}$`, "su");
}

/**
 * Returns whether relative paths match one of the patterns, which are those of WalkDirectory: in the notation of
 * .gitignore, without negation. What the server and this would not match alike would be deleted by a transfer.
 */
export function matcher(patterns: readonly string[]): (path: string, isDirectory: boolean) => boolean {
  const tests = patterns.map((pattern) => {
    const bare = pattern.replace(/\/$/, "");
    const names = bare.replace(/^\//, "").split("/");
    if (pattern.startsWith("!") || pattern.includes("\0") || names.some((name) => name === "" || name === "." || name === "..")) {
      throw malformed(pattern, 'it has an empty part, ".", "..", NUL, or a "!" at its beginning');
    }
    const sources = names.map((name, i) => {
      const last = i === names.length - 1;
      return name === "**" ? (last ? ".+" : "(?:[^/]+/)*") : nameSource(name, pattern) + (last ? "" : "/");
    });
    return { directories: bare !== pattern, whole: bare.includes("/"), regExp: new RegExp(`^${sources.join("")}$`, "su") };
  });
  return (path, isDirectory) => {
    const name = path.slice(path.lastIndexOf("/") + 1);
    return tests.some(({ directories, whole, regExp }) => (isDirectory || !directories) && regExp.test(whole ? path : name));
  };
}

function nameSource(name: string, pattern: string): string {
  let source = "";
  let end = 0;
  // In a class a first "]" is a character.
  for (const [part, negated, set, escaped, character = escaped] of name.matchAll(/\*+|\?|\[(?:([!^])|(?![!^]))((?:\\.|[^\\])(?:\\.|[^\]\\])*)\]|\\(.)|([^[\\])/gsuy)) {
    end += part.length;
    if (character !== undefined) {
      source += literal(character);
    } else if (set !== undefined) {
      if (set.includes("[:")) {
        throw malformed(pattern, "there are no named classes like [:alpha:]");
      }
      source += `(?!/)[${negated ? "^" : ""}${setSource(set)}]`;
    } else {
      source += part === "?" ? "[^/]" : "[^/]*";
    }
  }
  if (end < name.length) {
    throw malformed(pattern, "a bracket is not closed, or a backslash has no character");
  }
  return source;
}

/** The characters and ranges of a class. */
function setSource(set: string): string {
  const ranges = set.matchAll(/(\\.|.)(?:-(\\.|.))?/gsu);
  return [...ranges]
    .map(([, low = "", high = low]) => [low, high].map((one) => one.slice(one.length > 1 && one.startsWith("\\") ? 1 : 0)) as [string, string])
    .filter(([low, high]) => (low.codePointAt(0) as number) <= (high.codePointAt(0) as number)) // else it has none
    .map(([low, high]) => `${literal(low)}-${literal(high)}`)
    .join("");
}

function literal(character: string): string {
  return `\\u{${(character.codePointAt(0) as number).toString(16)}}`;
}

function malformed(pattern: string, why: string): UsageError {
  return new UsageError(`the pattern ${JSON.stringify(pattern)} is malformed: ${why}`);
}
