// Tests against fake servers: one that breaks streams at random, and ones that violate the contract.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, createRouterTransport, type ServiceImpl } from "@connectrpc/connect";
import { type ProcessEvent, ProtocolError, UnavailableError } from "execwire";
import {
  type AcknowledgeOutputRequest,
  OutputStream,
  type OwnProcessRequest,
  type OwnProcessResponseSchema,
  type ProcessEvent as EventMessage,
  ProcessEventSchema,
  ProcessService,
  RunStartSchema,
  type WriteStdinRequest,
} from "execwire/v1";
import { makeError } from "#dist/errors.js";
import { Attempts } from "#dist/retry.js";
import type { Link } from "#dist/link.js";
import { Rpc } from "#dist/rpc.js";
import { Run } from "#dist/run.js";
import { StdinBuffer } from "#dist/stdin.js";

type Response = MessageInitShape<typeof OwnProcessResponseSchema>;
type Handler = (request: OwnProcessRequest) => AsyncIterable<Response>;

function owner(ownProcess: Handler, calls: Partial<ServiceImpl<typeof ProcessService>> = {}): Run {
  const transport = createRouterTransport(({ service }) =>
    service(ProcessService, { acknowledgeOutput: () => ({}), writeStdin: ({ offset, data }) => ({ acceptedOffset: offset + BigInt(data.length) }), ...calls, ownProcess }),
  );
  const start = create(RunStartSchema, { process: { processId: "x", io: { io: { case: "pipes", value: {} } } } });
  return new Run(new Rpc({ transport } as Link, 60_000), { start, existing: false, afterSeq: 0, maxBufferedBytes: 1 << 20 });
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

/** An error with a reason. */
function failure(code: Code, reason: string): ConnectError {
  const error = new ConnectError(reason, code);
  const info = new BinaryWriter().tag(1, WireType.LengthDelimited).string(reason).tag(2, WireType.LengthDelimited).string("execwire.v1");
  error.details.push({ type: "google.rpc.ErrorInfo", value: info.finish() });
  return error;
}

const started = (stdinOffset: number, window: number, ownerId = "owner"): Response => ({
  message: {
    case: "started",
    value: { process: { processId: "x" }, ownerId, stdinOffset: BigInt(stdinOffset), stdinWindowBytes: 1000n, outputWindowBytes: BigInt(window), outputWindowEvents: 64n },
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
  private sent = 0;
  private stream = 0;
  /** The owner id of the stream that owns the process; empty: it was lost. */
  private owner = "";
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

  async *serve({ message }: OwnProcessRequest): AsyncGenerator<Response> {
    const mine = ++this.stream;
    this.breaks(); // received, but not answered
    const after = message.case === "resume" ? Number(message.value.afterSeq) : 0;
    this.acknowledged = Math.max(this.acknowledged, after);
    this.sent = after;
    this.owner = `${mine}`;
    yield started(this.received.length, this.window, this.owner);
    try {
      for (;;) {
        this.breaks();
        const end = this.ended ? [exited(this.log.length + 1), closed(this.log.length + 2, this.written)] : [];
        const next = [...this.log, ...end][this.sent];
        const inFlight = this.log.slice(this.acknowledged, this.sent).reduce((sum, e) => sum + (e.event.case === "output" ? e.event.value.data.length : 0), 0);
        if (next && inFlight < this.window) {
          this.sent++;
          yield told(next);
          continue;
        }
        if (next === undefined && this.ended && this.acknowledged === this.sent) {
          return;
        }
        await new Promise<void>((resolve) => this.news.push(resolve));
      }
    } finally {
      if (this.stream === mine) {
        this.owner = "";
      }
    }
  }

  private readonly checkOwner = (ownerId: string): void => {
    this.breaks(); // received, but not applied
    if (ownerId !== this.owner) {
      throw ownerId === `${this.stream}` ? failure(Code.FailedPrecondition, "PROCESS_OWNER_LOST") : failure(Code.Aborted, "PROCESS_TAKEN_OVER");
    }
  };

  readonly acknowledgeOutput = ({ ownerId, seq }: AcknowledgeOutputRequest): object => {
    this.checkOwner(ownerId);
    this.require(Number(seq) <= this.sent, `acknowledged ${seq} when ${this.sent} were sent`);
    this.acknowledged = Math.max(this.acknowledged, Number(seq));
    this.wake();
    this.breaks(); // applied, but not answered
    return {};
  };

  readonly writeStdin = ({ ownerId, offset, data, endOfFile }: WriteStdinRequest): { acceptedOffset: bigint } => {
    this.checkOwner(ownerId);
    const skip = this.received.length - Number(offset);
    this.require(skip >= 0, `a hole in the input: ${offset} after ${this.received.length}`);
    this.require(Number(offset) + data.length <= this.received.length + 1000, "more than a window of input");
    const applied = data.subarray(skip, skip + 1 + this.roll(data.length)); // perhaps a part, and then it fails
    this.received.push(...applied);
    if (applied.length < data.length - skip) {
      throw cut();
    }
    this.ended ||= endOfFile;
    this.wake();
    this.breaks();
    return { acceptedOffset: BigInt(this.received.length) };
  };

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
      const run = owner((request) => model.serve(request), model);
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
  let [hearFirst, hearSecond] = [(): void => undefined, (): void => undefined];
  const heardFirst = new Promise<void>((resolve) => (hearFirst = resolve));
  const heardSecond = new Promise<void>((resolve) => (hearSecond = resolve));
  const run = owner(
    async function* () {
      yield started(0, 1000);
      yield told(output(1, 0, data), output(2, 3, data));
      await heardSecond;
      yield told(exited(3), closed(4, 6));
    },
    {
      acknowledgeOutput: ({ seq }) => {
        heard.push(seq);
        (heard.length === 1 ? hearFirst : hearSecond)();
        return {};
      },
    },
  );
  await run.take();
  await run.take();
  await heardFirst; // the second event is being processed
  assert.deepEqual((await events(run)).map(({ type }) => type), ["exited", "closed"]);
  assert.deepEqual(heard.slice(0, 2), [1n, 2n]);
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
    const run = owner(async function* ({ message }) {
      if (streams++ === 0) {
        yield started(0, 100);
        yield told(gap(5));
        throw cut();
      }
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
    const run = owner(async function* () {
      streams++;
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

test("a call that is repeated for a time is not repeated when its first sending is longer ago", async () => {
  const rpc = new Rpc({ transport: createRouterTransport(() => undefined) } as Link, 60_000);
  let calls = 0;
  const unanswered = (): Promise<never> => {
    calls++;
    for (const begin = performance.now(); performance.now() - begin < 2; );
    return Promise.reject(cut());
  };
  await assert.rejects(rpc.repeat(unanswered, undefined, 1), UnavailableError);
  assert.equal(calls, 1);
});
