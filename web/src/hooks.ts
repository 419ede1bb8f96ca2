import type { Client } from "execwire";
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";

/** The client of the page. */
export const ClientContext = createContext<Client | undefined>(undefined);

/** Returns the client of the page. */
export function useClient(): Client {
  const client = useContext(ClientContext);
  if (!client) {
    throw new Error("there is no client");
  }
  return client;
}

/** What a poll has found, and why the last one failed. */
export interface Polled<T> {
  readonly value: T | undefined;
  readonly error: unknown;
}

/**
 * Asks again and again, a time after each answer, while the component is shown and the page is visible. Without a time it
 * asks once.
 */
export function usePoll<T>(ask: (signal: AbortSignal) => Promise<T>, everyMs: number | undefined, inputs: readonly unknown[]): Polled<T> & { readonly again: () => void } {
  const [polled, setPolled] = useState<Polled<T>>({ value: undefined, error: undefined });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      while (!stop.signal.aborted) {
        if (everyMs === undefined || document.visibilityState === "visible") {
          try {
            const value = await ask(stop.signal);
            if (!stop.signal.aborted) {
              setPolled({ value, error: undefined });
            }
          } catch (error) {
            if (!stop.signal.aborted) {
              setPolled((before) => ({ value: before.value, error }));
            }
          }
        }
        await new Promise<void>((resolve) => {
          const timer = everyMs === undefined ? undefined : setTimeout(resolve, everyMs);
          stop.signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
        });
      }
    })();
    return () => stop.abort();
  }, [...inputs, turn]);
  return { ...polled, again: () => setTurn((n) => n + 1) };
}

/** The place in the page: the part of the address after #. */
export function usePlace(): string {
  const [place, setPlace] = useState(location.hash.slice(1));
  useEffect(() => {
    const changed = () => setPlace(location.hash.slice(1));
    addEventListener("hashchange", changed);
    changed(); // it may have changed since it was drawn
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
