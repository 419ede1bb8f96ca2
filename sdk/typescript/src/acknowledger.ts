/** How long a few consumed events may stay unacknowledged, before the server can release them. */
const idleMs = 50;
/** How many small events are acknowledged together if the server does not announce its window. */
const assumedEvents = 1024;

/**
 * Decides when consumed events are acknowledged: at a quarter of either window, so that a process never waits
 * for it; at once after the last event; otherwise shortly after the first.
 */
export class Acknowledger {
  private byteLimit = 0;
  private eventLimit = assumedEvents;
  /** Bytes that the caller has finished processing, not yet acknowledged. */
  private bytes = 0;
  private events = 0;
  private seq = 0;
  /** Events handed to the caller after those: they must not be acknowledged yet. */
  private pending: { seq: number; bytes: number }[] = [];
  private due = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** wake is called when there is something to acknowledge. */
  constructor(private readonly wake: () => void) {}

  /**
   * Begins a stream with these windows; 0 events are unknown. Unacknowledged events are sent again on it, and
   * consumed again.
   */
  resume(windowBytes: number, windowEvents: number): void {
    this.byteLimit = windowBytes / 4;
    this.eventLimit = windowEvents > 0 ? windowEvents / 4 : assumedEvents;
    this.bytes = this.events = 0;
    this.pending = [];
    this.due = false;
    this.stop();
  }

  /** Records that an event was handed to the caller, which may still process it. */
  took(seq: number, bytes: number): void {
    this.pending.push({ seq, bytes });
  }

  /** Records that the caller has finished processing all events so far, and whether the last one is final. */
  done(final: boolean): void {
    for (const { seq, bytes } of this.pending.splice(0)) {
      this.seq = seq;
      this.bytes += bytes;
      this.events++;
    }
    if (this.events === 0) {
      return;
    }
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
