// Calls an MCP server on another machine: the official MCP client, with an Execwire process as its transport.
//
//   node mcp.js tcp://127.0.0.1:7420 node /srv/mcp/node_modules/.bin/mcp-server-filesystem /srv/project
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { ReadBuffer, serializeMessage } from "@modelcontextprotocol/sdk/shared/stdio.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import type { JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js";
import { type Client, connect, type Process, type StartOptions } from "execwire";

/** The stdio of a process as an MCP transport. It survives lost connections. */
export class ProcessTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  private process: Process | undefined;

  /** onStderr receives the stderr of the server. */
  constructor(
    private readonly client: Client,
    private readonly argv: readonly string[],
    private readonly options: StartOptions & { readonly onStderr?: (data: Uint8Array) => void } = {},
  ) {}

  async start(): Promise<void> {
    this.process = await this.client.start(this.argv, this.options);
    void this.receive(this.process);
  }

  async send(message: JSONRPCMessage): Promise<void> {
    await this.process?.write(serializeMessage(message));
  }

  /** Ends the server as the MCP specification requires: by the end of its stdin, then by signals. */
  async close(): Promise<void> {
    await this.process?.closeStdin();
    await this.process?.waitFor({ exit: true }, { waitMs: 2_000 }).catch(() => undefined);
    await this.process?.close();
  }

  private async receive(process: Process): Promise<void> {
    const buffer = new ReadBuffer();
    try {
      for await (const { stream, data } of process.output()) {
        if (stream === "stderr") {
          this.options.onStderr?.(data);
          continue;
        }
        buffer.append(Buffer.from(data));
        for (let message = buffer.readMessage(); message; message = buffer.readMessage()) {
          this.onmessage?.(message);
        }
      }
    } catch (error) {
      this.onerror?.(error as Error);
    }
    this.onclose?.();
  }
}

async function main([server, ...argv]: string[]): Promise<void> {
  if (server === undefined || argv.length === 0) {
    console.error("usage: mcp SERVER PROGRAM [ARGUMENT]...");
    process.exit(2);
  }
  await using client = await connect(server);
  const mcp = new McpClient({ name: "execwire-example", version: "0.1.0" });
  await mcp.connect(new ProcessTransport(client, argv));
  const { tools } = await mcp.listTools();
  console.log(`${mcp.getServerVersion()?.name} has ${tools.length} tools:`);
  for (const { name } of tools) {
    console.log(`  ${name}`);
  }
  await mcp.close();
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  await main(process.argv.slice(2));
}
