import type { GetStatusResponse } from "execwire/v1";
import { useRef } from "preact/hooks";
import { messageOf, size, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";

/** How many samples a plot shows, one every two seconds. */
const samples = 120;

/** What the server does in one moment. */
interface Sample {
  readonly time: number;
  readonly cpu: number;
  readonly memory: number;
  readonly output: number;
  readonly running: number;
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
      const sample = { time: timeOf(status.time), cpu: (100 * cpu) / seconds, memory, output: output / seconds, running };
      history.current.samples = [...history.current.samples, sample].slice(-samples);
    }
    return status;
  }, 2_000, [client]);
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

/** A line of values over time, the last at the right. */
function Plot({ name, values, show }: { name: string; values: readonly number[]; show: (value: number) => string }) {
  const most = Math.max(1, ...values);
  const points = values.map((v, i) => `${(300 * (samples - values.length + i)) / (samples - 1)},${58 - (54 * v) / most}`).join(" ");
  const last = values.at(-1);
  return (
    <figure class="plot">
      <figcaption>{name}<strong>{last === undefined ? "–" : show(last)}</strong></figcaption>
      <svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={`${name}, at most ${show(Math.max(0, ...values))}`}>
        {values.length > 1 ? <polyline points={points} vector-effect="non-scaling-stroke" /> : null}
      </svg>
      <small>{values.length > 1 ? `at most ${show(Math.max(0, ...values))} in ${2 * values.length} s` : "collecting…"}</small>
    </figure>
  );
}
