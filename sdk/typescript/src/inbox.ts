import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import type { ProcessEvent as EventMessage } from "./gen/execwire/v1/process_event_pb.js";
import { Queue } from "./queue.js";

/** What was received of a process and not taken. Whoever receives waits while it is full, whoever takes while it is empty. */
export class Inbox {
  /** The seq of the last event that was received. */
  lastSeq: number;
  /** Whether the closed event was received. */
  closed = false;
  private exited: EventMessage | undefined;
  private waiting = new Queue<EventMessage>();
  private bytes = 0;
  private readonly takers = new Set<() => void>();
  private receivers: (() => void)[] = [];

  constructor(private readonly processId: string, afterSeq: number, private readonly maxBytes: number) {
    this.lastSeq = afterSeq;
  }

  /** Whether more waits than may. */
  get full(): boolean {
    return this.bytes > this.maxBytes;
  }

  /** How the process ended, if that was received. */
  get exit(): Exit | undefined {
    if (!this.exited) {
      return undefined;
    }
    // Not all that waits before it was looked at.
    const peek = new EventTracker(this.processId, Number(this.exited.seq) - 1);
    peek.take(this.exited);
    return peek.exit;
  }

  /** Adds what was received. */
  add(events: EventMessage[]): void {
    for (const event of events) {
      this.waiting.push(event);
      this.bytes += bytesOf(event);
      if (event.seq !== 0n) {
        this.lastSeq = Number(event.seq);
      }
      if (event.event.case === "exited") {
        this.exited = event;
      }
      this.closed ||= event.event.case === "closed";
    }
    this.wakeTakers();
  }

  /** Takes the oldest event out, with how many bytes of output it has; undefined when there is none. */
  shift(): { message: EventMessage; bytes: number } | undefined {
    const message = this.waiting.shift();
    if (!message) {
      return undefined;
    }
    const bytes = bytesOf(message);
    this.bytes -= bytes;
    this.wakeReceivers();
    return { message, bytes };
  }

  /** Lets go of all that waits: it comes again, behind a seq. */
  restart(afterSeq: number): void {
    this.waiting = new Queue();
    this.bytes = 0;
    this.lastSeq = afterSeq;
  }

  /** Waits until something was taken, or wakeReceivers is called. */
  room(): Promise<void> {
    return new Promise((resolve) => this.receivers.push(resolve));
  }

  /** Waits until there may be more to take, or the signal aborts. */
  news(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        signal?.removeEventListener("abort", done);
        this.takers.delete(done);
        resolve();
      };
      signal?.addEventListener("abort", done, { once: true });
      this.takers.add(done);
    });
  }

  wakeTakers(): void {
    for (const wake of [...this.takers]) {
      wake();
    }
  }

  wakeReceivers(): void {
    for (const wake of this.receivers.splice(0)) {
      wake();
    }
  }
}

function bytesOf({ event }: EventMessage): number {
  return event.case === "output" ? event.value.data.length : 0;
}
