import { type Client, connect } from "execwire";

/** A page that has no session: what to say to its user. */
export class NoSession extends Error {}

/** Exchanges the secret of the link in the address, if there is one, for a cookie, and connects. */
export async function open(): Promise<Client> {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) {
    history.replaceState(null, "", "/#/processes");
  }
  const answer = await fetch("/session", token === null ? {} : { method: "POST", body: token });
  if (!answer.ok && token !== null && (await fetch("/session")).ok) {
    return connect(location.origin); // the link was opened by this browser before
  }
  if (!answer.ok) {
    throw new NoSession(await answer.text());
  }
  return connect(location.origin);
}

/** Returns a link that opens the page in another browser, once. */
export async function newLink(): Promise<string> {
  const answer = await fetch("/session", { method: "PUT" });
  if (!answer.ok) {
    throw new Error(await answer.text());
  }
  return answer.text();
}
