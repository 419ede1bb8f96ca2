import { UsageError } from "./errors.js";
import { Signal } from "./gen/execwire/v1/process_event_pb.js";

/** The name of a Linux signal, such as "SIGTERM". */
export type SignalName = `SIG${Exclude<keyof typeof Signal, "UNSPECIFIED">}`;

/** The number of a signal, given by name or number, 1 to 64. */
export function signalNumber(signal: SignalName | number): Signal {
  if (typeof signal === "number") {
    if (!Number.isInteger(signal) || signal < 1 || signal > 64) {
      throw new UsageError(`signal ${signal} is not a signal: use 1 to 64, or a name such as "SIGTERM"`);
    }
    return signal as Signal;
  }
  const number = Signal[signal.replace(/^SIG/, "") as keyof typeof Signal] as Signal | undefined;
  if (!number || !signal.startsWith("SIG")) {
    throw new UsageError(`signal ${JSON.stringify(signal)} is not a signal: use 1 to 64, or a name such as "SIGTERM"`);
  }
  return number;
}
