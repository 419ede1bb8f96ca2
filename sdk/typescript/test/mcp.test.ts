import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { ProcessTransport } from "../examples/mcp.js";
import { dial, directory, Proxy, serve } from "./fixture.js";

const program = join(import.meta.dirname, "../../../../examples/mcp/node_modules/.bin/mcp-server-filesystem");

test("an MCP server on an executor answers over a connection that is cut", async (t) => {
  assert.ok(existsSync(program), `${program} is missing: run scripts/install-node-packages examples/mcp`);
  const { url } = await serve(t);
  const proxy = await Proxy.start(t, url);
  const client = await dial(t, proxy.url);
  const dir = directory(t);
  writeFileSync(join(dir, "there"), "on the executor\n");
  let resumed = 0;
  let resume: () => void = () => undefined;
  const transport = new ProcessTransport(client, [process.execPath, program, dir], {
    onResumed: () => {
      resumed++;
      resume();
    },
  });
  const mcp = new McpClient({ name: "test", version: "1" });
  await mcp.connect(transport);
  assert.equal(mcp.getServerVersion()?.name, "secure-filesystem-server");
  const { tools } = await mcp.listTools();
  assert.ok(tools.some(({ name }) => name === "read_text_file"));
  for (let i = 0; i < 3; i++) {
    const again = new Promise<void>((resolve) => (resume = resolve));
    const read = mcp.callTool({ name: "read_text_file", arguments: { path: join(dir, "there") } });
    proxy.cut();
    const { content } = (await read) as { content: { text: string }[] };
    assert.equal(content[0]?.text, "on the executor\n");
    await mcp.callTool({ name: "write_file", arguments: { path: join(dir, `made-${i}`), content: "x".repeat(300_000) } });
    assert.equal(readFileSync(join(dir, `made-${i}`), "utf8").length, 300_000);
    await again;
  }
  assert.equal(resumed, 3);
  const closed = new Promise<void>((resolve) => (mcp.onclose = resolve));
  await mcp.close();
  await closed;
});

test("the MCP example prints its result", async (t) => {
  const { url } = await serve(t);
  const example = join(import.meta.dirname, "../examples/mcp.js");
  const { status, stdout, stderr } = spawnSync(process.execPath, [example, url, process.execPath, program, directory(t)], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  assert.match(stdout, /secure-filesystem-server has \d+ tools:\n  /);
});
