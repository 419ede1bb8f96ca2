// Types of Node.js. The comments reach the compiled declarations: without @types/node, as in a
// project for browsers, the types are any, instead of errors in this package.

/** @ts-ignore */
export type { Server } from "node:net";
/** @ts-ignore */
export type { Readable, Writable } from "node:stream";
/** @ts-ignore */
export type ReadableStream = NodeJS.ReadableStream;
/** @ts-ignore */
export type WritableStream = NodeJS.WritableStream;
