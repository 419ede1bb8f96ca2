import { onAbort } from "./time.js";

/** A queue whose shift does not move the remaining items. */
export class Queue<T> {
  private items: (T | undefined)[] = [];
  private head = 0;

  push(item: T): void {
    this.items.push(item);
  }

  shift(): T | undefined {
    const item = this.items[this.head];
    this.items[this.head++] = undefined; // release the reference
    if (this.head >= this.items.length) {
      this.items = [];
      this.head = 0;
    } else if (this.head >= 1024) {
      this.items = this.items.slice(this.head);
      this.head = 0;
    }
    return item;
  }
}

/** Lets a number of tasks run at once, first come, first served. */
export class Slots {
  private readonly waiting = new Set<() => void>();

  constructor(private free: number) {}

  /** Waits for a slot and runs the task; rejects with the reason of the signal if it aborts first. */
  async run<R>(task: () => Promise<R>, signal?: AbortSignal): Promise<R> {
    signal?.throwIfAborted();
    if (this.free > 0) {
      this.free--;
    } else {
      await new Promise<void>((resolve, reject) => {
        const start = (): void => {
          forget();
          resolve();
        };
        const forget = onAbort(signal, () => {
          this.waiting.delete(start);
          reject(signal?.reason);
        });
        this.waiting.add(start);
      });
    }
    try {
      return await task();
    } finally {
      const [next] = this.waiting;
      if (next) {
        this.waiting.delete(next);
        next();
      } else {
        this.free++;
      }
    }
  }
}
