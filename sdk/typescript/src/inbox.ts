import { EventTracker } from "./events.js";
import type { Exit } from "./exit.js";
import type { ProcessEvent as EventMessage } from "./gen/execwire/v1/process_event_pb.js";
import { Queue } from "./queue.js";
import { onAbort } from "./time.js";

/**
 * The received but unconsumed events of a process. The receiver waits while it is full, the consumer while it
 * is empty.
 */
export class Inbox {
  /** The seq of the last received event. */
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

  /** Whether it has more than its limit. */
  get full(): boolean {
    return this.bytes > this.maxBytes;
  }

  /** How the process ended, if received. */
  get exit(): Exit | undefined {
    if (!this.exited) {
      return undefined;
    }
    // The events before it were not processed.
    const peek = new EventTracker(this.processId, Number(this.exited.seq) - 1);
    peek.take(this.exited);
    return peek.exit;
  }

  /** Adds received events. */
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
    this.wakeConsumers();
  }

  /** Removes the oldest event, with its size; undefined if there is none. */
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

  /** Drops all events: they are sent again after a seq. */
  restart(afterSeq: number): void {
    this.waiting = new Queue();
    this.bytes = 0;
    this.lastSeq = afterSeq;
  }

  /** Waits until an event was consumed, or wakeReceivers is called. */
  waitForSpace(): Promise<void> {
    return new Promise((resolve) => this.receivers.push(resolve));
  }

  /** Waits until there may be another event, or the signal aborts. */
  waitForEvent(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        forget();
        this.takers.delete(done);
        resolve();
      };
      const forget = onAbort(signal, done);
      this.takers.add(done);
    });
  }

  wakeConsumers(): void {
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
