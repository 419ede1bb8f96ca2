import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";
import { makeError, type ErrorDetails, type ExecwireError, type FieldViolation, UsageError } from "./errors.js";

/** The domain of every ErrorInfo of an execwire server. */
const domain = "execwire.v1";

/** Restores the typed error of a call of a generated client. Other errors are returned unchanged. */
export function fromRpc(error: unknown): unknown {
  if (!(error instanceof ConnectError)) {
    return error;
  }
  return error.cause instanceof UsageError ? error.cause : fromConnect(error);
}

function fromConnect(error: ConnectError): ExecwireError {
  const details = {
    reason: "",
    metadata: {} as Record<string, string>,
    fields: [] as FieldViolation[],
    resource: "",
    retryAfterMs: 0,
  } satisfies ErrorDetails;
  for (const detail of error.details) {
    if (!("type" in detail)) {
      continue; // made locally, without details
    }
    switch (detail.type) {
      case "google.rpc.ErrorInfo": {
        const info = readErrorInfo(detail.value);
        if (info.domain === domain) {
          details.reason = info.reason;
          details.metadata = info.metadata;
        }
        break;
      }
      case "google.rpc.BadRequest":
        details.fields.push(...readBadRequest(detail.value));
        break;
      case "google.rpc.ResourceInfo":
        details.resource = readResourceName(detail.value);
        break;
      case "google.rpc.RetryInfo":
        details.retryAfterMs = readRetryDelay(detail.value);
        break;
    }
  }
  return makeError(codeName(error.code), error.rawMessage, details, error);
}

/** NotFound → NOT_FOUND, with gRPC's spelling of the one code that Connect spells differently. */
function codeName(code: Code): string {
  if (code === Code.Canceled) {
    return "CANCELLED";
  }
  return (Code[code] ?? "Unknown").replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}

// The messages of google/rpc/error_details.proto, decoded by hand: packages that generate them are not in
// every registry.

function readErrorInfo(bytes: Uint8Array): { reason: string; domain: string; metadata: Record<string, string> } {
  const info = { reason: "", domain: "", metadata: {} as Record<string, string> };
  readFields(bytes, {
    1: (r) => (info.reason = r.string()),
    2: (r) => (info.domain = r.string()),
    3: (r) => {
      let key = "";
      let value = "";
      readFields(r.bytes(), { 1: (e) => (key = e.string()), 2: (e) => (value = e.string()) });
      info.metadata[key] = value;
    },
  });
  return info;
}

function readBadRequest(bytes: Uint8Array): FieldViolation[] {
  const violations: FieldViolation[] = [];
  readFields(bytes, {
    1: (r) => {
      let field = "";
      let description = "";
      readFields(r.bytes(), { 1: (v) => (field = v.string()), 2: (v) => (description = v.string()) });
      violations.push({ field, description });
    },
  });
  return violations;
}

function readResourceName(bytes: Uint8Array): string {
  let name = "";
  readFields(bytes, { 2: (r) => (name = r.string()) });
  return name;
}

function readRetryDelay(bytes: Uint8Array): number {
  let ms = 0;
  readFields(bytes, {
    1: (r) =>
      readFields(r.bytes(), {
        1: (d) => (ms += Number(d.int64()) * 1000),
        2: (d) => (ms += d.int32() / 1e6),
      }),
  });
  return ms;
}

/** Decodes a message, and skips fields without a reader. A malformed message is decoded up to the error. */
function readFields(bytes: Uint8Array, fields: Record<number, (reader: BinaryReader) => unknown>): void {
  const reader = new BinaryReader(bytes);
  try {
    while (reader.pos < reader.len) {
      const [number, type] = reader.tag();
      const read = fields[number];
      if (read) {
        read(reader);
      } else {
        reader.skip(type);
      }
    }
  } catch {
    return; // code and message of the error are still available
  }
}
