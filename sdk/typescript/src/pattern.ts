/**
 * The regular expression of a pattern: "*" and "?" match no slash, a component "**" any directories, "[a-z]" a
 * character, "\" makes the next character an ordinary one.
 */
export function patternRegExp(pattern: string): RegExp {
  const parts = pattern.matchAll(/\*\*\/|\*+|\?|\[([!^]?)(\]?[^\]]*)\]|\\?([^])/g);
  let source = "";
  for (const [part, negated, set, character] of parts) {
    if (character !== undefined) {
      source += character.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
    } else if (set !== undefined) {
      source += `[${negated ? "^/" : ""}${set.replace(/[\\[\]]/g, "\\$&")}]`;
    } else {
      source += part === "**/" ? "(?:[^/]+/)*" : part === "?" ? "[^/]" : part === "*" ? "[^/]*" : ".*";
    }
  }
  return new RegExp(`^${source}$`, "su");
}

/** Whether a component of a path is a pattern. */
export function isPattern(component: string): boolean {
  return /[*?[\\]/.test(component);
}

/** Returns whether relative paths match one of the patterns in the notation of .gitignore, without negation. */
export function matcher(patterns: readonly string[]): (path: string, isDirectory: boolean) => boolean {
  const tests = patterns.map((pattern) => {
    const bare = pattern.replace(/\/$/, "");
    return { directories: bare !== pattern, whole: bare.includes("/"), regExp: patternRegExp(bare.replace(/^\//, "")) };
  });
  return (path, isDirectory) => {
    const name = path.slice(path.lastIndexOf("/") + 1);
    return tests.some(({ directories, whole, regExp }) => (isDirectory || !directories) && regExp.test(whole ? path : name));
  };
}
