package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execwire/execwire/internal/secretfile"
)

// readCredentials adds the credentials of the last principal.
func (r *tableReader) readCredentials(p principalTable) error {
	before := len(r.table.hashes) + len(r.table.bySelector)
	if err := r.readToken(p); err != nil {
		return err
	}
	for _, text := range p.Certificates {
		value, problem := certificateSelector(text)
		if problem != "" {
			return r.entryError(p.Name, "write uri:…, dns:…, cn:… or sha256: and 64 hexadecimal digits", "certificates has %q, which %s", text, problem)
		}
		if err := r.add(p.Name, selector{byCertificate, value}); err != nil {
			return err
		}
	}
	for _, name := range p.UnixUsers {
		uid, err := lookupUID(name)
		if err != nil {
			return r.entryError(p.Name, "write the name of a user of this machine, or a number", "unix_users has %q: %v", name, err)
		}
		if err := r.add(p.Name, userSelector(uid)); err != nil {
			return err
		}
	}
	for _, subject := range p.JWTSubjects {
		if subject == "" || r.table.jwt == nil {
			return r.entryError(p.Name, "name a subject and add [jwt] with a key", "jwt_subjects has %q, but no key is configured", subject)
		}
		if err := r.add(p.Name, selector{bySubject, subject}); err != nil {
			return err
		}
	}
	for _, identity := range p.Identities {
		if kind, value, _ := strings.Cut(identity, ":"); value == "" || kind != "email" && kind != "sub" {
			return r.entryError(p.Name, "write for example email:ann@example.org, or sub: and the subject at the OpenID provider", "oidc_identities has %q", identity)
		}
		if err := r.add(p.Name, selector{byIdentity, identity}); err != nil {
			return err
		}
	}
	if p.Loopback {
		if err := r.add(p.Name, selector{byLoopback, "true"}); err != nil {
			return err
		}
	}
	// A principal that is only impersonated needs no credential.
	if len(r.table.hashes)+len(r.table.bySelector) == before && len(p.OnBehalfOf) > 0 {
		return r.entryError(p.Name, "add token_file, token_sha256, certificates, unix_users, loopback, jwt_subjects or oidc_identities", "it has no credential, so it cannot act on behalf of others")
	}
	return nil
}

// add assigns the selector to the last principal.
func (r *tableReader) add(name string, s selector) error {
	if owner, taken := r.table.bySelector[s]; taken {
		return r.entryError(name, "assign it to one of them", "%s has %q, and so has %s", s.kind, s.value, r.table.entries[owner].name)
	}
	r.table.bySelector[s] = len(r.table.entries) - 1
	return nil
}

func (r *tableReader) readToken(p principalTable) error {
	if p.TokenFile != "" && p.TokenSHA256 != "" {
		return r.entryError(p.Name, "remove one", "it has both token_file and token_sha256")
	}
	var hash TokenHash
	switch {
	case p.TokenFile != "":
		text, err := r.secret(p.Name, "token_file", p.TokenFile)
		if err != nil {
			return err
		}
		if bytes.ContainsFunc(text, notTokenChar) {
			return r.entryError(p.Name, "write letters and digits, for example with: openssl rand -hex 32", "token_file %s has characters that cannot be sent", p.TokenFile)
		}
		hash = HashToken(text)
	case p.TokenSHA256 != "":
		sum, err := hex.DecodeString(p.TokenSHA256)
		if err != nil || len(sum) != len(hash) {
			return r.entryError(p.Name, "write what this prints: printf %s \"$TOKEN\" | sha256sum", "token_sha256 is not 64 hexadecimal digits")
		}
		hash = TokenHash(sum)
	default:
		return nil
	}
	if i := slices.Index(r.table.hashes, hash); i >= 0 {
		return r.entryError(p.Name, "give each its own", "its token is also that of %s", r.table.entries[r.table.owners[i]].name)
	}
	r.table.hashes = append(r.table.hashes, hash)
	r.table.owners = append(r.table.owners, len(r.table.entries)-1)
	return nil
}

// secret reads the secret file that key refers to.
func (r *tableReader) secret(entry, key, path string) ([]byte, error) {
	return r.readFile(entry, key, path, func(path string) ([]byte, error) { return secretfile.Token(path, MinSecretBytes) })
}

// readFile reads the file that key refers to.
func (r *tableReader) readFile(entry, key, path string, read func(path string) ([]byte, error)) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, r.entryError(entry, "write an absolute path", "%s %q is not an absolute path", key, path)
	}
	r.files = append(r.files, path)
	text, err := read(path)
	if err != nil {
		return nil, &TableError{File: r.file, Entry: entry, Problem: key, Err: err}
	}
	return text, nil
}

// certificateSelector returns the normal form of a certificate selector, or what
// is wrong with it.
func certificateSelector(text string) (value, problem string) {
	kind, value, _ := strings.Cut(text, ":")
	switch {
	case value == "":
		return "", "selects nothing"
	case kind == "sha256":
		sum, err := hex.DecodeString(strings.ReplaceAll(value, ":", ""))
		if err != nil || len(sum) != sha256.Size {
			return "", "is not a SHA-256"
		}
		return "sha256:" + hex.EncodeToString(sum), ""
	case kind == "dns":
		return "dns:" + strings.ToLower(value), ""
	case kind == "uri", kind == "cn":
		return text, ""
	}
	return "", "has no kind that is known"
}

// lookupUID returns the uid of a user, who is named or given by number.
func lookupUID(name string) (uint32, error) {
	uid, err := strconv.ParseUint(name, 10, 32)
	if err == nil {
		return uint32(uid), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, errors.New("there is no such user")
	}
	uid, err = strconv.ParseUint(u.Uid, 10, 32)
	return uint32(uid), err
}

// userSelector selects callers on a unix socket by their user.
func userSelector(uid uint32) selector {
	return selector{byUser, strconv.FormatUint(uint64(uid), 10)}
}

// defaultClockSkew is the default of max_clock_skew.
const defaultClockSkew = 30 * time.Second

// maxClockSkew is the maximum of max_clock_skew.
const maxClockSkew = time.Hour

func (r *tableReader) readJWT(t *jwtTable) error {
	if t == nil {
		return nil
	}
	opts := JWTOptions{Issuer: t.Issuer, Audience: t.Audience, MaxClockSkew: defaultClockSkew}
	if t.MaxClockSkew != "" {
		skew, err := time.ParseDuration(t.MaxClockSkew)
		if err != nil || skew < 0 || skew > maxClockSkew {
			return r.entryError("jwt", "write for example \"30s\"; the maximum is "+maxClockSkew.String(), "max_clock_skew cannot be %q", t.MaxClockSkew)
		}
		opts.MaxClockSkew = skew
	}
	var err error
	if t.HS256SecretFile != "" {
		if opts.HS256Secret, err = r.secret("jwt", "hs256_secret_file", t.HS256SecretFile); err != nil {
			return err
		}
	}
	if t.EdDSAPublicKeyFile != "" {
		if opts.EdDSAPublicKey, err = r.publicKey(t.EdDSAPublicKeyFile); err != nil {
			return err
		}
	}
	if opts.HS256Secret == nil && opts.EdDSAPublicKey == nil {
		return r.entryError("jwt", "add hs256_secret_file or eddsa_public_key_file", "it has no key")
	}
	r.table.jwt = NewJWT(opts)
	return nil
}

// publicKey reads an Ed25519 key in PEM.
func (r *tableReader) publicKey(path string) (ed25519.PublicKey, error) {
	text, err := r.readFile("jwt", "eddsa_public_key_file", path, secretfile.Public)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(text); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if public, ok := key.(ed25519.PublicKey); err == nil && ok {
			return public, nil
		}
	}
	return nil, r.entryError("jwt", "make one with: openssl pkey -in KEY -pubout", "eddsa_public_key_file %s has no Ed25519 public key in PEM", path)
}
