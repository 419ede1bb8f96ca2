/** A size in bytes with three digits and a binary unit, as in 1.5 MiB. */
export function size(bytes: number | bigint): string {
  let value = Number(bytes);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1000 || unit === "GiB") {
      return `${unit === "B" || value >= 100 ? Math.round(value) : value.toPrecision(3).replace(/\.?0+$/, "")} ${unit}`;
    }
    value /= 1024;
  }
  return "";
}

/** A duration of some milliseconds in its two largest units, as in 3m 20s. */
export function duration(ms: number): string {
  if (ms < 1000) {
    return `${Math.max(0, Math.round(ms))} ms`;
  }
  const seconds = ms / 1000;
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  const s = Math.floor(seconds);
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d > 0) {
    return `${d}d ${h}h`;
  }
  return h > 0 ? `${h}h ${m}m` : m > 0 ? `${m}m ${s % 60}s` : `${s} s`;
}

/** A command line that a person can read: arguments with special characters are quoted. */
export function commandLine(argv: readonly string[]): string {
  return argv.map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", `'\\''`)}'`)).join(" ");
}

/** The permission bits as ls prints them. */
export function mode(bits: number): string {
  return [6, 3, 0].map((shift) => "rwx".split("").map((letter, i) => ((bits >> shift) & (4 >> i) ? letter : "-")).join("")).join("");
}

/** What an error says to a person. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A time of the contract in milliseconds since 1970; 0 if it is absent. */
export function timeOf(t: { readonly seconds: bigint; readonly nanos: number } | undefined): number {
  return t ? Number(t.seconds) * 1000 + t.nanos / 1e6 : 0;
}

/** A time of the contract as the reader writes it; nothing if it is absent. */
export function shownTime(t: { readonly seconds: bigint; readonly nanos: number } | undefined): string {
  return t ? new Date(timeOf(t)).toLocaleString() : "";
}
