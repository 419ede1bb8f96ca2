import { type Client, connect } from "execwire";

/** A page that has no session: what to say to its user. */
export class NoSession extends Error {}

/** What the page shows: one server, or the executors of a hub, for a principal or for somebody who has to sign in. */
export type Session =
  | { readonly kind: "server" }
  | { readonly kind: "hub"; readonly principal: string; readonly executor: string | undefined }
  | { readonly kind: "login"; readonly problem: string; readonly provider: string };

/** Where the page is, without a slash at the end: the page of a hub is below a path. */
const base = location.pathname.replace(/\/[^/]*$/, "");
/** The executor of a hub that the page shows. */
const executor = new URLSearchParams(location.search).get("executor") ?? undefined;
/** The query with which an OpenID provider has sent the browser back; empty if none has. */
const answer = new URLSearchParams(location.search).has("state") ? location.search.slice(1) : "";
/** Where the server of the page has its calls. */
export const serverPath = executor === undefined ? base : `${base}/executor/${encodeURIComponent(executor)}`;

/** Returns the address of the page for an executor of the hub. */
export function executorPage(id: string): string {
  return `${base}/?executor=${encodeURIComponent(id)}#/processes`;
}

/** Connects to the server of the page. */
export function connectServer(): Promise<Client> {
  return connect(location.origin + serverPath);
}

/**
 * Exchanges the secret of the link in the address, if there is one, for a cookie. A hub makes no such links, and signs nobody
 * in by one: any site could lead a browser to it.
 */
export async function open(): Promise<Session> {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null || answer !== "") {
    history.replaceState(null, "", `${location.pathname}${answer === "" ? location.search : ""}#/processes`);
  }
  let opened = await fetch(`${base}/session`);
  if (!opened.ok && token !== null) { // this browser has not opened the link before
    opened = await fetch(`${base}/session`, { method: "POST", body: token });
  }
  if (!opened.ok) {
    throw new NoSession(await opened.text());
  }
  if (opened.status !== 200) {
    return { kind: "server" };
  }
  const { principal, needs_token, provider } = (await opened.json()) as HubSession;
  if (principal !== "") {
    return { kind: "hub", principal, executor };
  }
  if (answer !== "") {
    return login(answer, provider, "oidc");
  }
  return needs_token ? { kind: "login", problem: "", provider } : login("", provider);
}

/** What a hub says about the browser. */
interface HubSession {
  readonly principal: string;
  readonly needs_token: boolean;
  /** The OpenID provider at which people may sign in; empty if there is none. */
  readonly provider: string;
}

/** Signs in at the hub, by a token or the answer of its provider. */
export async function login(body: string, provider: string, path = "session"): Promise<Session> {
  const answer = await fetch(`${base}/${path}`, { method: "POST", body });
  if (!answer.ok) {
    return { kind: "login", problem: await hubProblem(answer), provider };
  }
  return { kind: "hub", principal: ((await answer.json()) as HubSession).principal, executor };
}

/** Leaves the page for the provider of the hub, to sign in there. */
export async function leaveForProvider(): Promise<void> {
  const answer = await fetch(`${base}/oidc`);
  if (!answer.ok) {
    throw new Error(await hubProblem(answer));
  }
  location.assign(((await answer.json()) as { url: string }).url);
}

/** Signs out at the hub, which ends what the page does there. */
export async function logout(): Promise<void> {
  await fetch(`${base}/session`, { method: "DELETE" });
  location.assign(`${base}/`);
}

/** An executor of a hub. */
export interface Executor {
  readonly id: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly version: string;
  readonly connected: boolean;
  readonly last_seen?: string;
  readonly streams: number;
}

/** Returns the executors of the hub that the user may connect to or act as. */
export async function executors(signal: AbortSignal): Promise<readonly Executor[]> {
  const answer = await fetch(`${base}/executors`, { signal });
  if (!answer.ok) {
    if (answer.status === 401) {
      location.reload(); // to the form to sign in
    }
    throw new Error(await hubProblem(answer));
  }
  return ((await answer.json()) as { executors: readonly Executor[] }).executors;
}

/** What a refusal of the hub says. */
async function hubProblem(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    return (JSON.parse(text) as { error: { message: string } }).error.message;
  } catch {
    return text || answer.statusText;
  }
}

/** Returns a link that opens the page in another browser, once. */
export async function newLink(): Promise<string> {
  const answer = await fetch(`${base}/session`, { method: "PUT" });
  if (!answer.ok) {
    throw new Error(await answer.text());
  }
  return answer.text();
}
