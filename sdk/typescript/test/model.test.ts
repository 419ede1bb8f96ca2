// Tests against fake servers: one that breaks streams at random, and ones that violate the contract.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { type ProcessEvent, ProtocolError } from "execwire";
import { OutputStream, type ProcessEvent as EventMessage, ProcessEventSchema, ProcessService, type RunProcessRequest, type RunProcessResponseSchema, RunStartSchema } from "execwire/v1";
import { makeError } from "#dist/errors.js";
import { Attempts } from "#dist/retry.js";
import { Rpc } from "#dist/rpc.js";
import { Run } from "#dist/run.js";
import { StdinBuffer } from "#dist/stdin.js";

type Response = MessageInitShape<typeof RunProcessResponseSchema>;
type Handler = (requests: AsyncIterable<RunProcessRequest>) => AsyncIterable<Response>;

function owner(handler: Handler): Run {
  const transport = createRouterTransport(({ service }) => service(ProcessService, { runProcess: handler }));
  const start = create(RunStartSchema, { process: { processId: "x", io: { io: { case: "pipes", value: {} } } } });
  return new Run(new Rpc(transport, 60_000), { start, existing: false, afterSeq: 0, maxBufferedBytes: 1 << 20 });
}

async function events(run: Run, pauses: (below: number) => number = () => 0): Promise<ProcessEvent[]> {
  const all: ProcessEvent[] = [];
  for (let event = await run.take(); event; event = await run.take()) {
    all.push(event);
    for (let ticks = pauses(4); ticks > 0; ticks--) {
      await new Promise((resolve) => setImmediate(resolve)); // more arrives meanwhile
    }
  }
  return all;
}

const cut = (): ConnectError => new ConnectError("the connection was cut", Code.Unavailable);
const started = (stdinOffset: number, window: number): Response => ({
  message: {
    case: "started",
    value: { process: { processId: "x" }, stdinOffset: BigInt(stdinOffset), stdinWindowBytes: 1000n, outputWindowBytes: BigInt(window), outputWindowEvents: 64n },
  },
});
const output = (seq: number, offset: number, data: Uint8Array): EventMessage =>
  create(ProcessEventSchema, { seq: BigInt(seq), event: { case: "output", value: { stream: OutputStream.STDOUT, offset: BigInt(offset), data } } });
const exited = (seq: number): EventMessage =>
  create(ProcessEventSchema, { seq: BigInt(seq), event: { case: "exited", value: { exit: { status: { case: "exitCode", value: 0 } } } } });
const closed = (seq: number, bytes: number): EventMessage =>
  create(ProcessEventSchema, { seq: BigInt(seq), event: { case: "closed", value: { totals: [{ stream: OutputStream.STDOUT, bytes: BigInt(bytes) }] } } });
const told = (...list: EventMessage[]): Response => ({ message: { case: "events", value: { events: list } } });

/** A reproducible random number generator. */
function random(seed: number): (below: number) => number {
  let state = seed * 2654435761 + 1;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A process that writes its log, reads its input, and ends when it has read all of it. */
class Model {
  readonly log: EventMessage[] = [];
  readonly received: number[] = [];
  /** Violations of the contract by the client. */
  readonly violations: string[] = [];
  written = 0;
  cuts: number;
  private ended = false;
  private acknowledged = 0;
  private stream = 0;
  private news: (() => void)[] = [];

  constructor(private readonly roll: (below: number) => number, private readonly window: number) {
    this.cuts = roll(12);
    for (let seq = 1; seq <= roll(60); seq++) {
      const data = Uint8Array.from({ length: 1 + roll(300) }, () => roll(256));
      this.log.push(output(seq, this.written, data));
      this.written += data.length;
    }
  }

  private breaks(): void {
    if (this.cuts > 0 && this.roll(10) === 0) {
      this.cuts--;
      throw cut();
    }
  }

  async *serve(requests: AsyncIterable<RunProcessRequest>): AsyncGenerator<Response> {
    const mine = ++this.stream;
    const iterator = requests[Symbol.asyncIterator]();
    const first = (await iterator.next()).value as RunProcessRequest;
    this.breaks(); // received, but not answered
    const after = first.message.case === "resume" ? Number(first.message.value.afterSeq) : 0;
    this.acknowledged = Math.max(this.acknowledged, after);
    yield started(this.received.length, this.window);
    let sent = after;
    let broken: unknown;
    let accepted = this.received.length;
    void (async () => {
      try {
        for (let next = await iterator.next(); !next.done && mine === this.stream; next = await iterator.next()) {
          this.take(next.value, sent);
          this.wake();
        }
      } catch (error) {
        broken = error;
        this.wake();
      }
    })();
    for (;;) {
      if (broken !== undefined) {
        throw broken;
      }
      this.breaks();
      if (accepted < this.received.length) {
        accepted = this.received.length;
        yield { message: { case: "stdinAccepted", value: { offset: BigInt(accepted) } } };
        continue;
      }
      const end = this.ended ? [exited(this.log.length + 1), closed(this.log.length + 2, this.written)] : [];
      const next = [...this.log, ...end][sent];
      const inFlight = this.log.slice(this.acknowledged, sent).reduce((sum, e) => sum + (e.event.case === "output" ? e.event.value.data.length : 0), 0);
      if (next && inFlight < this.window) {
        sent++;
        yield told(next);
        continue;
      }
      if (next === undefined && this.ended && this.acknowledged === sent) {
        return;
      }
      await new Promise<void>((resolve) => this.news.push(resolve));
    }
  }

  private take({ message }: RunProcessRequest, sent: number): void {
    this.breaks();
    if (message.case === "acknowledge") {
      this.require(Number(message.value.seq) <= sent, `acknowledged ${message.value.seq} when ${sent} were sent`);
      this.acknowledged = Math.max(this.acknowledged, Number(message.value.seq));
    } else if (message.case === "stdin") {
      const { offset, data, endOfFile } = message.value;
      const skip = this.received.length - Number(offset);
      this.require(skip >= 0, `a hole in the input: ${offset} after ${this.received.length}`);
      this.require(Number(offset) + data.length <= this.received.length + 1000, "more than a window of input");
      this.received.push(...data.subarray(skip));
      this.ended ||= endOfFile;
      this.breaks(); // accepted, but not confirmed
    }
  }

  private require(rule: boolean, broken: string): void {
    if (!rule) {
      this.violations.push(broken);
    }
  }

  private wake(): void {
    for (const resolve of this.news.splice(0)) {
      resolve();
    }
  }
}

test("both directions arrive exactly once and in order, wherever streams break", async () => {
  let resumed = 0;
  await Promise.all(
    Array.from({ length: 40 }, async (_, seed) => {
      const roll = random(seed + 1);
      const model = new Model(roll, 1 + roll(2000));
      const run = owner((requests) => model.serve(requests));
      const input = Uint8Array.from({ length: roll(5000) }, () => roll(256));
      const writing = (async () => {
        for (let at = 0; at < input.length; ) {
          const piece = input.subarray(at, at + 1 + roll(700));
          await run.stdin.write(piece);
          at += piece.length;
        }
        await run.stdin.end();
      })();
      const all = await events(run, roll);
      await writing;
      await run.over;
      const wanted = model.log.map((e) => (e.event.case === "output" ? Buffer.from(e.event.value.data).toString("hex") : ""));
      const got = all.map((e) => (e.type === "output" ? Buffer.from(e.data).toString("hex") : e.type));
      assert.deepEqual(model.violations, [], `seed ${seed}`);
      assert.deepEqual(got, [...wanted, "exited", "closed"], `seed ${seed}`);
      assert.deepEqual(Uint8Array.from(model.received), input, `seed ${seed}`);
      assert.equal(run.exit?.stdoutBytes, model.written);
      resumed += run.exit?.resumed ?? 0;
    }),
  );
  assert.ok(resumed > 40, `streams were resumed ${resumed} times only`);
});

test("input is drained once its end was accepted", async () => {
  const stdin = new StdinBuffer(false, () => undefined);
  await stdin.write(Buffer.from("one"));
  await stdin.end();
  stdin.next();
  stdin.accept(3, false);
  assert.equal(stdin.drained, false);
  stdin.accept(3, true);
  assert.equal(stdin.drained, true);
});

test("an event processed during an acknowledgement is acknowledged later", async () => {
  const data = Buffer.from("abc");
  const heard: bigint[] = [];
  let hearFirst = (): void => undefined;
  const heardFirst = new Promise<void>((resolve) => (hearFirst = resolve));
  const run = owner(async function* (requests) {
    const iterator = requests[Symbol.asyncIterator]();
    await iterator.next();
    yield started(0, 1000);
    yield told(output(1, 0, data), output(2, 3, data));
    while (heard.length < 2) {
      const { message } = (await iterator.next()).value as RunProcessRequest;
      heard.push(message.case === "acknowledge" ? message.value.seq : -1n);
      hearFirst();
    }
    yield told(exited(3), closed(4, 6));
  });
  await run.take();
  await run.take();
  await heardFirst; // the second event is being processed
  assert.deepEqual((await events(run)).map(({ type }) => type), ["exited", "closed"]);
  assert.deepEqual(heard, [1n, 2n]);
});

test("a gap consumed while resuming is not delivered twice", async () => {
  for (const [again, wanted] of [
    [5, ["gap 5", "5", "exited", "closed"]],
    [9, ["gap 5", "gap 9, at most", "9", "exited", "closed"]],
  ] as const) {
    const gap = (first: number): EventMessage =>
      create(ProcessEventSchema, { event: { case: "gap", value: { firstAvailableSeq: BigInt(first), droppedBytes: BigInt(first) } } });
    let [streams, taken] = [0, (): void => undefined];
    const whenTaken = new Promise<void>((resolve) => (taken = resolve));
    const run = owner(async function* (requests) {
      const { value } = await requests[Symbol.asyncIterator]().next();
      if (streams++ === 0) {
        yield started(0, 100);
        yield told(gap(5));
        throw cut();
      }
      const { message } = value as RunProcessRequest;
      assert.equal(message.case === "resume" && message.value.afterSeq, 0n);
      taken();
      await new Promise((resolve) => setImmediate(resolve)); // it is consumed before the answer arrives
      yield started(0, 100);
      yield told(gap(again), output(again, again, Buffer.from("abc")), exited(again + 1), closed(again + 2, again + 3));
    });
    await whenTaken;
    const delivered = (await events(run)).map((e) =>
      e.type === "gap" ? `gap ${e.firstAvailableSeq}${e.upperBound ? ", at most" : ""}` : e.type === "output" ? `${e.seq}` : e.type,
    );
    assert.deepEqual(delivered, wanted);
  }
});

test("protocol violations throw ProtocolError", async () => {
  const data = Buffer.from("abc");
  for (const [problem, responses] of [
    [/seq 3 follows seq 1/, [started(0, 100), told(output(1, 0, data), output(3, 3, data))]],
    [/goes on at offset 5/, [started(0, 100), told(output(1, 0, data), output(2, 5, data))]],
    [/without an exit record/, [started(0, 100), told(closed(1, 0))]],
    [/3 bytes of stdout were sent and 9/, [started(0, 100), told(output(1, 0, data), exited(2), closed(3, 9))]],
    [/without the closed event/, [started(0, 100), told(output(1, 0, data), exited(2))]],
    [/twice/, [started(0, 100), started(0, 100)]],
    [/first message/, [told(output(1, 0, data))]],
    [/accepted 7 bytes of stdin/, [started(7, 100)]],
  ] as const) {
    let streams = 0;
    const run = owner(async function* (requests) {
      streams++;
      await requests[Symbol.asyncIterator]().next();
      yield* responses;
    });
    await assert.rejects(events(run), (error: unknown) => error instanceof ProtocolError && problem.test(error.message), String(problem));
    assert.equal(streams, 1, `${problem} was tried again`);
  }
});

test("an evicted connection is a lost one", () => {
  for (const [reason, transient] of [["TOO_MANY_CONNECTIONS", true], ["TOO_MANY_PROCESSES", false]] as const) {
    const details = { reason, metadata: {}, fields: [], resource: "", retryAfterMs: 1000 };
    assert.equal(new Attempts().transient(makeError("RESOURCE_EXHAUSTED", "full", details)), transient, reason);
  }
});
