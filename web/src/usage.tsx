import type { ProcessUsage } from "execwire/v1";
import { useRef } from "preact/hooks";
import { messageOf, size, timeOf } from "./format.js";
import { useClient, usePoll } from "./hooks.js";
import { maxSamples, Plot, sampleMs } from "./plot.js";

/** What a process uses in one moment. */
interface Sample {
  readonly cpu: number | undefined;
  readonly memory: number;
  readonly output: number | undefined;
  readonly programs: number;
}

/** The samples of a process since its page was opened: those that a plot can show. */
export interface Usage {
  readonly samples: readonly Sample[];
  readonly error: unknown;
}

/** Samples what a process uses, as long as it runs. */
export function useUsage(id: string, sessionId: string, running: boolean): Usage {
  const client = useClient();
  const history = useRef<{ last: ProcessUsage | undefined; samples: Sample[] }>({ last: undefined, samples: [] });
  const { error } = usePoll(async (signal) => {
    if (!running) {
      return;
    }
    const { usage } = await client.stubs.processes.getProcess({ sessionId, processId: id, withUsage: true }, { signal });
    const { last } = history.current;
    history.current.last = usage;
    if (!usage) {
      return;
    }
    const seconds = last ? (timeOf(usage.time) - timeOf(last.time)) / 1000 : 0;
    const rate = (now: number, before: number) => (seconds > 0 ? Math.max(0, now - before) / seconds : undefined);
    const sample = {
      cpu: rate(timeOf(usage.cpuTime) / 10, timeOf(last?.cpuTime) / 10), // milliseconds as percent of a second
      memory: Number(usage.residentBytes),
      output: rate(Number(usage.outputBytes), Number(last?.outputBytes ?? 0n)),
      programs: usage.programs,
    };
    history.current.samples = [...history.current.samples, sample].slice(-maxSamples);
  }, sampleMs, [client, id, sessionId, running]);
  return { samples: history.current.samples, error };
}

/** Plots of what a process and its descendants use. */
export function UsagePlots({ usage: { samples, error }, running }: { usage: Usage; running: boolean }) {
  return (
    <div class="usage">
      {error ? <p class="problem" role="alert">{messageOf(error)}</p> : null}
      {samples.length === 0 && !running ? <p class="note">The process has ended: Details has what it used.</p> : (
        <div class="plots">
          <Plot name="Processors" values={samples.map((s) => s.cpu)} show={(v) => `${v.toFixed(v < 10 ? 1 : 0)} %`} />
          <Plot name="Memory" values={samples.map((s) => s.memory)} show={size} />
          <Plot name="Output" values={samples.map((s) => s.output)} show={(v) => `${size(v)}/s`} />
          <Plot name="Programs" values={samples.map((s) => s.programs)} show={String} />
        </div>
      )}
      <p class="note">Of the process and its descendants, since this page was opened.</p>
    </div>
  );
}
