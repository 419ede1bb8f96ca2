import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema, type Timestamp } from "@bufbuild/protobuf/wkt";
import { UsageError } from "./errors.js";

/** The milliseconds of a duration; 0 if undefined. */
export function durationMs(duration: Duration | undefined): number {
  return duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : 0;
}

/** The duration of a number of milliseconds. */
export function durationOf(name: string, ms: number): Duration {
  if (!Number.isFinite(ms) || ms < 0) {
    throw new UsageError(`${name} is ${ms}: give milliseconds, 0 or more`);
  }
  const nanos = BigInt(Math.round(ms * 1e6));
  return create(DurationSchema, { seconds: nanos / 1_000_000_000n, nanos: Number(nanos % 1_000_000_000n) });
}

/** The date of a timestamp, in milliseconds; undefined if undefined. */
export function dateOf(time: Timestamp | undefined): Date | undefined {
  return time && new Date(Number(time.seconds) * 1000 + Math.floor(time.nanos / 1e6));
}

/**
 * What waits for each signal, by its one listener: Node.js warns beyond ten, and looks at all others whenever one is
 * added or removed.
 */
const waiting = new WeakMap<AbortSignal, { readonly calls: Set<() => void>; readonly listener: () => void }>();

/** Calls a function when a signal aborts, unless the returned function is called first. */
export function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  if (!signal) {
    return () => undefined;
  }
  let known = waiting.get(signal);
  if (!known) {
    const calls = new Set<() => void>();
    known = { calls, listener: () => calls.forEach((one) => one()) };
    waiting.set(signal, known);
    signal.addEventListener("abort", known.listener, { once: true });
  }
  const { calls, listener } = known;
  const mine = (): void => call(); // the same function may wait twice
  calls.add(mine);
  return () => {
    if (calls.delete(mine) && calls.size === 0) {
      waiting.delete(signal);
      signal.removeEventListener("abort", listener);
    }
  };
}

/** Resolves after a time; rejects with the reason of the signal if it aborts first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, ms);
  });
}

/** A signal that aborts with the first of several, until it is disposed of. */
export class LinkedSignal {
  private readonly controller = new AbortController();
  private readonly unlink: (() => void)[] = [];

  constructor(...signals: (AbortSignal | undefined)[]) {
    for (const signal of signals) {
      if (!signal) {
        continue;
      }
      if (signal.aborted) {
        this.abort(signal.reason);
        return;
      }
      this.unlink.push(onAbort(signal, () => this.abort(signal.reason)));
    }
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  abort(reason?: unknown): void {
    this.dispose();
    this.controller.abort(reason);
  }

  dispose(): void {
    for (const unlink of this.unlink.splice(0)) {
      unlink();
    }
  }
}

/** Settles as the promise does, or rejects with the reason of the signal if it aborts first. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) {
    return promise;
  }
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      promise.catch(() => undefined);
      return;
    }
    const forget = onAbort(signal, () => reject(signal.reason));
    promise.then(resolve, reject).finally(forget);
  });
}
