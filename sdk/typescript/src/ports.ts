import { TruncatedError } from "./errors.js";
import type { Port } from "./gen/execwire/v1/port_pb.js";
import type { Rpc } from "./rpc.js";

/** A TCP port on which a process, or a descendant of it, listens. */
export interface ListeningPort {
  /** The address it is bound to, such as "127.0.0.1", "0.0.0.0" or "::". */
  readonly address: string;
  /** Its number. */
  readonly port: number;
  /** The id of the process. */
  readonly processId: string;
  /** The PID of the program that listens. */
  readonly pid: number;
  /** The name of that program; empty if unknown. */
  readonly program: string;
}

/** A change of the open ports: applied in order to a set, changes make it current. */
export interface PortChange {
  /** Ports that are no longer open. */
  readonly closed: readonly ListeningPort[];
  /** Ports that are new. */
  readonly opened: readonly ListeningPort[];
  /** Whether there are more than 2,000; those with the highest numbers are missing. */
  readonly truncated: boolean;
}

/** Which ports: those of a session, or of one process of it. */
interface Selected {
  readonly sessionId: string;
  readonly processId: string;
}

export async function ports(rpc: Rpc, selected: Selected, signal: AbortSignal | undefined): Promise<ListeningPort[]> {
  const response = await rpc.repeat((call) => rpc.stubs.ports.listPorts(selected, call), signal);
  if (response.truncated) {
    throw new TruncatedError(`there are more than ${response.ports.length} open ports: ask for those of one process`);
  }
  return response.ports.map(described);
}

/** Changes during a lost connection are unknown, so it throws then. */
export async function* watchPorts(rpc: Rpc, selected: Selected, signal: AbortSignal | undefined): AsyncGenerator<PortChange, void, undefined> {
  for await (const { closed, opened, truncated } of rpc.stream((call) => rpc.stubs.ports.watchPorts(selected, call), signal)) {
    yield { closed: closed.map(described), opened: opened.map(described), truncated };
  }
}

function described({ address, port, processId, pid, program }: Port): ListeningPort {
  return { address, port, processId, pid, program };
}
