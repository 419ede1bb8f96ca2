import { readFileSync, statSync } from "node:fs";
import { CredentialError, messageOf, UsageError } from "./errors.js";
import { checkToken } from "./link.js";

/** PEM files for TLS connections. They are read again for every connection. */
export interface TlsFiles {
  /** The CAs for the certificate of the server. Absent means those of Node.js. */
  readonly ca?: string;
  /** The certificate chain of the client. Both this and `key`, or neither. */
  readonly certificate?: string;
  /** Its private key, which only the user may be able to read. */
  readonly key?: string;
}

/** The credentials for a server. */
export class Credentials {
  private readonly literal: string | undefined;
  private readonly file: string | undefined;
  private version = "";
  private fromFile = "";

  constructor(token: string | undefined, tokenFile: string | undefined, readonly tls: TlsFiles) {
    if (token !== undefined && tokenFile !== undefined) {
      throw new UsageError("token and tokenFile are given: leave one of them out");
    }
    if ((tls.certificate === undefined) !== (tls.key === undefined)) {
      throw new UsageError("a client certificate and its key are needed together: name both files or neither");
    }
    this.literal = token === undefined ? undefined : checkToken(token, "token");
    this.file = tokenFile;
    this.tlsOptions();
    this.token();
  }

  get hasToken(): boolean {
    return this.literal !== undefined || this.file !== undefined;
  }

  /**
   * The token, or undefined. A token file is read again when it changes; an unusable version leaves the
   * previous token in use.
   */
  token(): string | undefined {
    if (this.file === undefined) {
      return this.literal;
    }
    try {
      const { mtimeNs, ino, size } = statSync(this.file, { bigint: true });
      const version = `${ino} ${mtimeNs} ${size}`;
      if (version !== this.version) {
        this.fromFile = checkToken(readSecret(this.file), this.file);
        this.version = version;
      }
    } catch (error) {
      if (this.version === "") {
        throw asCredentialError(error, this.file);
      }
    }
    return this.fromFile;
  }

  /** The options of node:tls. */
  tlsOptions(): { ca?: string; cert?: string; key?: string } {
    const { ca, certificate, key } = this.tls;
    return {
      ...(ca !== undefined && { ca: readPublic(ca) }),
      ...(certificate !== undefined && { cert: readPublic(certificate) }),
      ...(key !== undefined && { key: readSecret(key) }),
    };
  }
}

function readPublic(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw asCredentialError(error, file);
  }
}

function readSecret(file: string): string {
  try {
    const { mode } = statSync(file);
    if ((mode & 0o077) !== 0) {
      throw new CredentialError(`others may read ${file}: run chmod 600 ${file}`);
    }
    return readFileSync(file, "utf8");
  } catch (error) {
    throw asCredentialError(error, file);
  }
}

function asCredentialError(error: unknown, file: string): CredentialError {
  return error instanceof CredentialError
    ? error
    : new CredentialError(`failed to read ${file}: ${messageOf(error)}`, { cause: error });
}
