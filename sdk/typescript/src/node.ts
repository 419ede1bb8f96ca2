import { createHash } from "node:crypto";
import { parseAddress, redact } from "./address.js";
import { Credentials } from "./credentials.js";
import { UsageError } from "./errors.js";
import { forward } from "./forward.js";
import { Helper } from "./helper.js";
import { HttpLink } from "./http.js";
import { interactive } from "./interactive.js";
import type { Opened, OpenOptions, Platform } from "./platform.js";
import { save } from "./save.js";
import { ProcessStreams } from "./streams.js";
import { Connection, requireLoopback } from "./transport.js";
import { pull, push } from "./tree.js";
import { upload } from "./upload.js";

export const platform: Platform = {
  open,
  newDigest: () => createHash("sha256"),
  upload,
  save,
  push,
  pull,
  streams: (process) => new ProcessStreams(process),
  interactive,
  forward,
};

async function open(url: string, options: OpenOptions): Promise<Opened> {
  const address = parseAddress(url);
  const { token, tokenFile, tls = {}, signal, binary } = options;
  if (address.kind === "local") {
    const helper = await Helper.start("local:", binary, (listen) => ["serve", "--listen", listen, "--until-stdin-closes", ...(options.args ?? [])], signal);
    return helped(helper);
  }
  if (address.kind === "relay") {
    if (token !== undefined) {
      throw new UsageError("a relay requires tokenFile instead of token");
    }
    const flags: [string, string | undefined][] = [
      ["--token-file", tokenFile],
      ["--tls-ca", tls.ca],
      ["--tls-cert", tls.certificate],
      ["--tls-key", tls.key],
    ];
    const given = flags.flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
    const args = (listen: string): string[] => ["forward", "--server", url, "--listen", listen, "--until-stdin-closes", ...given];
    return helped(await Helper.start(redact(url), binary, args, signal));
  }
  const credentials = new Credentials(token, tokenFile, tls);
  requireLoopback(address, credentials);
  return { link: address.kind === "tcp" && address.http ? new HttpLink(address, credentials) : new Connection(address, credentials) };
}

function helped(helper: Helper): Opened {
  return { link: new Connection({ kind: "unix", path: helper.socket }, new Credentials(undefined, undefined, {})), helper };
}
