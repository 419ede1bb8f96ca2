import type { Screen } from "./gen/execwire/v1/process_service_pb.js";
import { Attempts } from "./retry.js";
import type { Rpc } from "./rpc.js";

/** Iterates over the screens of a terminal, each with all lines. A lost connection is resumed. */
export async function* watchScreen(
  rpc: Rpc,
  request: { sessionId: string; processId: string; styles: boolean },
  signal: AbortSignal | undefined,
): AsyncGenerator<Screen, void, undefined> {
  const attempts = new Attempts();
  for (;;) {
    // The first message of a call has all lines.
    let shown: Screen | undefined;
    try {
      for await (const { screen } of rpc.stream((call) => rpc.stubs.processes.watchScreen(request, call), signal)) {
        attempts.progress();
        attempts.lostAt = undefined;
        if (screen) {
          shown = changed(shown, screen);
          yield shown;
        }
      }
      return;
    } catch (error) {
      await rpc.again(attempts, error, signal);
    }
  }
}

/** Returns a screen with the lines of before and those of change. */
function changed(before: Screen | undefined, change: Screen): Screen {
  if (!before || change.lines.length >= (change.size?.rows ?? 0)) {
    return change;
  }
  const lines = new Map([...before.lines, ...change.lines].map((line) => [line.row, line]));
  return { ...change, lines: [...lines.values()] };
}
