import type { DurationCounts, GetStatusResponse } from "execwire/v1";
import { useRef } from "preact/hooks";
import { messageOf, size, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";
import { maxSamples, Plot, sampleMs } from "./plot.js";

/** What the server does in one moment. */
interface Sample {
  readonly time: number;
  readonly cpu: number;
  readonly memory: number;
  readonly output: number;
  readonly running: number;
  readonly starts: number;
  readonly failed: number;
  /** The times that half, and all but one in a hundred, of the starts and calls did not exceed, in seconds; undefined without any. */
  readonly startHalf: number | undefined;
  readonly callMost: number | undefined;
}

/** Returns the time that a part of the events between two moments did not exceed: the bound of its class. */
function quantile(part: number, now: DurationCounts | undefined, before: DurationCounts | undefined): number | undefined {
  const counts = (now?.counts ?? []).map((n, i) => Math.max(0, Number(n - (before?.counts[i] ?? 0n))));
  const all = counts.reduce((a, b) => a + b, 0);
  let below = 0;
  for (const [i, n] of counts.entries()) {
    below += n;
    if (all > 0 && below >= part * all) {
      return now?.upperBounds[Math.min(i, now.upperBounds.length - 1)];
    }
  }
  return undefined;
}

/** A time in seconds for a person. */
function shownSeconds(s: number): string {
  return s < 1 ? `${Number((s * 1000).toPrecision(2))} ms` : `${s} s`;
}

/** The server: what it is, and what it uses. */
export function ServerPage() {
  const client = useClient();
  const { value: server } = usePoll((signal) => client.describe({ signal }), 30_000, [client]);
  const history = useRef<{ last: GetStatusResponse | undefined; samples: Sample[] }>({ last: undefined, samples: [] });
  const { error } = usePoll(async (signal) => {
    const status = await client.stubs.admin.getStatus({ maxProcesses: 10_000 }, { signal });
    const { last } = history.current;
    history.current.last = status;
    if (last?.time && status.time) {
      const seconds = (timeOf(status.time) - timeOf(last.time)) / 1000;
      const before = new Map(last.processes.map((p) => [`${p.sessionId}/${p.processId}`, p]));
      const cpuOf = (s: { readonly cpuTime?: Parameters<typeof timeOf>[0] }) => timeOf(s.cpuTime) / 1000;
      let [cpu, memory, output, running] = [0, Number(status.server?.residentBytes ?? 0n), 0, 0];
      if (status.server && last.server) {
        cpu += cpuOf(status.server) - cpuOf(last.server);
      }
      for (const p of status.processes) {
        const old = before.get(`${p.sessionId}/${p.processId}`);
        cpu += Math.max(0, cpuOf(p) - (old ? cpuOf(old) : 0));
        output += Math.max(0, Number(p.outputBytes - (old?.outputBytes ?? 0n)));
        memory += Number(p.residentBytes);
        running += p.pid !== 0 && p.residentBytes > 0n ? 1 : 0;
      }
      const rate = (name: "startedProcesses" | "failedStarts") => Math.max(0, Number((status.server?.[name] ?? 0n) - (last.server?.[name] ?? 0n))) / seconds;
      const sample = {
        time: timeOf(status.time), cpu: (100 * cpu) / seconds, memory, output: output / seconds, running, starts: rate("startedProcesses"), failed: rate("failedStarts"),
        startHalf: quantile(0.5, status.server?.startTimes, last.server?.startTimes),
        callMost: quantile(0.99, status.server?.callTimes, last.server?.callTimes),
      };
      history.current.samples = [...history.current.samples, sample].slice(-maxSamples);
    }
    return status;
  }, sampleMs, [client]);
  const shown = history.current.samples;
  return (
    <section class="page">
      <div class="bar"><h1>Server</h1></div>
      {error ? <p class="note">Plots need the permission admin: {messageOf(error)}</p> : (
        <div class="plots">
          <Plot name="Processors" values={shown.map((s) => s.cpu)} show={(v) => `${v.toFixed(0)} %`} />
          <Plot name="Memory" values={shown.map((s) => s.memory)} show={size} />
          <Plot name="Output" values={shown.map((s) => s.output)} show={(v) => `${size(v)}/s`} />
          <Plot name="Running processes" values={shown.map((s) => s.running)} show={String} />
          <Plot name="Starts" values={shown.map((s) => s.starts)} show={(v) => `${v.toFixed(1)}/s`} />
          <Plot name="Failed starts" values={shown.map((s) => s.failed)} show={(v) => `${v.toFixed(1)}/s`} />
          <Plot name="Start, half of them within" values={shown.map((s) => s.startHalf)} show={shownSeconds} />
          <Plot name="Calls, 99 of 100 within" values={shown.map((s) => s.callMost)} show={shownSeconds} />
        </div>
      )}
      {server ? (
        <dl class="details">
          <dt>Host</dt><dd>{server.hostName}</dd>
          <dt>Version</dt><dd>{server.serverVersion}</dd>
          <dt>System</dt><dd>{`${server.operatingSystem} ${server.kernelRelease}, ${server.architecture}, ${server.cpuCount} processors`}</dd>
          <dt>Shell</dt><dd>{server.shell}</dd>
          <dt>Directory</dt><dd>{server.workingDirectory}</dd>
          <dt>Instance</dt><dd>{server.instanceId}</dd>
        </dl>
      ) : null}
    </section>
  );
}
