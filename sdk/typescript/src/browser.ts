import { sha256 } from "@noble/hashes/sha2.js";
import { parseAddress, redact } from "./address.js";
import { BrowserLink } from "./browser-link.js";
import { uploadByPut } from "./browser-upload.js";
import { CredentialError, UsageError } from "./errors.js";
import { baseUrl, checkToken } from "./link.js";
import type { Opened, OpenOptions, Platform } from "./platform.js";

export const platform: Platform = {
  open,
  newDigest: () => sha256.create(),
  upload: uploadByPut,
  save: () => refuse("write to a file: use files.download"),
  push: () => refuse("read files: use files.write"),
  pull: () => refuse("write to files: use files.download"),
  streams: () => ({ output: () => refuse("have streams of Node.js: use output()"), input: () => refuse("have streams of Node.js: use write()") }),
  interactive: () => refuse("be the terminal of a process: start it with the option terminal, and use output() and write()"),
  forward: () => refuse("listen on a port: use execwire port-forward"),
};

async function open(url: string, options: OpenOptions): Promise<Opened> {
  const address = parseAddress(url);
  if (address.kind !== "tcp" || !address.http) {
    return refuse(`connect to ${redact(url) || "local:"}: use http://HOST:PORT or https://HOST:PORT`);
  }
  const { token, tokenFile, tls, binary, connections } = options;
  if (tokenFile !== undefined || tls !== undefined || binary !== undefined) {
    return refuse("read files or start programs: leave tokenFile, tls and binary out; token is the token itself");
  }
  const checked = token === undefined ? undefined : checkToken(token, "token");
  if (checked !== undefined && !address.tls && !/^(localhost|127\.[\d.]+|::1)$/.test(address.host)) {
    throw new CredentialError("a token would be sent in plain text to another host: use https://");
  }
  return { link: new BrowserLink(baseUrl(address), checked, connections) };
}

function refuse(what: string): never {
  throw new UsageError(`a page in a browser cannot ${what}`);
}
