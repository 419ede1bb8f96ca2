/** How long a few taken events may stay unacknowledged, so that the server can let go of them. */
const idleMs = 50;
/** How many small events are acknowledged at once when the server does not say how many it waits for. */
const assumedEvents = 1024;

/**
 * Decides when what was taken is acknowledged: at a quarter of either window, so that a process
 * never waits for it; at once when nothing follows; and a moment after the first otherwise.
 */
export class Acknowledger {
  private byteLimit = 0;
  private eventLimit = assumedEvents;
  private bytes = 0;
  private events = 0;
  private seq = 0;
  private due = false;
  private timer: NodeJS.Timeout | undefined;

  /** wake is called when there is something to acknowledge. */
  constructor(private readonly wake: () => void) {}

  /** Begins a stream with these windows; 0 events are unknown. */
  resume(windowBytes: number, windowEvents: number): void {
    this.byteLimit = windowBytes / 4;
    this.eventLimit = windowEvents > 0 ? windowEvents / 4 : assumedEvents;
    this.bytes = this.events = 0;
  }

  /** Notes that an event was taken. Whoever took it may not be done with it. */
  took(bytes: number): void {
    this.bytes += bytes;
    this.events++;
  }

  /** Says that whoever takes events is done with all up to a seq, and whether that is the last there is. */
  done(seq: number, final: boolean): void {
    if (this.events === 0) {
      return;
    }
    this.seq = seq;
    if (final || this.bytes > this.byteLimit || this.events >= this.eventLimit) {
      this.now();
    } else {
      this.timer ??= setTimeout(() => this.now(), idleMs);
    }
  }

  /** The seq to acknowledge now, or undefined. */
  next(): number | undefined {
    if (!this.due) {
      return undefined;
    }
    this.due = false;
    return this.seq;
  }

  stop(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private now(): void {
    this.stop();
    this.bytes = this.events = 0;
    this.due = true;
    this.wake();
  }
}
