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
  /** What whoever takes events is done with, and was not acknowledged. */
  private bytes = 0;
  private events = 0;
  private seq = 0;
  /** What was taken behind that: it may not be acknowledged yet. */
  private held: { seq: number; bytes: number }[] = [];
  private due = false;
  private timer: NodeJS.Timeout | undefined;

  /** wake is called when there is something to acknowledge. */
  constructor(private readonly wake: () => void) {}

  /**
   * Begins a stream with these windows; 0 events are unknown. What was taken and not acknowledged
   * is told again by it, and is taken again.
   */
  resume(windowBytes: number, windowEvents: number): void {
    this.byteLimit = windowBytes / 4;
    this.eventLimit = windowEvents > 0 ? windowEvents / 4 : assumedEvents;
    this.bytes = this.events = 0;
    this.held = [];
    this.due = false;
    this.stop();
  }

  /** Notes that the event of a seq was taken. Whoever took it may not be done with it. */
  took(seq: number, bytes: number): void {
    this.held.push({ seq, bytes });
  }

  /** Says that whoever takes events is done with all that were taken, and whether the last is the last there is. */
  done(final: boolean): void {
    for (const { seq, bytes } of this.held.splice(0)) {
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
