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

// readCredentials adds what lets the principal in that was added last.
func (r *tableReader) readCredentials(p principalTable) error {
	before := len(r.table.hashes) + len(r.table.by)
	if err := r.readToken(p); err != nil {
		return err
	}
	for _, text := range p.Certificates {
		value, problem := certificateSelector(text)
		if problem != "" {
			return r.wrong(p.Name, "write uri:…, dns:…, cn:… or sha256: and 64 hexadecimal digits", "certificates has %q, which %s", text, problem)
		}
		if err := r.add(p.Name, selector{byCertificate, value}); err != nil {
			return err
		}
	}
	for _, name := range p.UnixUsers {
		uid, err := lookUpUser(name)
		if err != nil {
			return r.wrong(p.Name, "write the name of a user of this machine, or a number", "unix_users has %q: %v", name, err)
		}
		if err := r.add(p.Name, selector{byUser, uid}); err != nil {
			return err
		}
	}
	for _, subject := range p.JWTSubjects {
		if subject == "" || r.table.jwt == nil {
			return r.wrong(p.Name, "name a subject and add [jwt] with a key", "jwt_subjects has %q, and nothing could ever be signed for it", subject)
		}
		if err := r.add(p.Name, selector{bySubject, subject}); err != nil {
			return err
		}
	}
	if p.Loopback {
		if err := r.add(p.Name, selector{byLoopback, "true"}); err != nil {
			return err
		}
	}
	// One that only others act for needs no credential.
	if len(r.table.hashes)+len(r.table.by) == before && len(p.OnBehalfOf) > 0 {
		return r.wrong(p.Name, "add token_file, token_sha256, certificates, unix_users, loopback or jwt_subjects", "nothing lets it in, so it cannot act for others")
	}
	return nil
}

// add lets the last principal in by what s selects.
func (r *tableReader) add(name string, s selector) error {
	if owner, taken := r.table.by[s]; taken {
		return r.wrong(name, "leave it to one of them", "%s has %q, and so has %s", s.kind, s.value, r.table.entries[owner].name)
	}
	r.table.by[s] = len(r.table.entries) - 1
	return nil
}

func (r *tableReader) readToken(p principalTable) error {
	if p.TokenFile != "" && p.TokenSHA256 != "" {
		return r.wrong(p.Name, "leave one out", "it has both token_file and token_sha256")
	}
	var hash TokenHash
	switch {
	case p.TokenFile != "":
		text, err := r.secret(p.Name, "token_file", p.TokenFile)
		if err != nil {
			return err
		}
		if bytes.ContainsFunc(text, notInToken) {
			return r.wrong(p.Name, "write letters and digits, for example with: openssl rand -hex 32", "token_file %s holds what a caller could not send", p.TokenFile)
		}
		hash = HashToken(text)
	case p.TokenSHA256 != "":
		sum, err := hex.DecodeString(p.TokenSHA256)
		if err != nil || len(sum) != len(hash) {
			return r.wrong(p.Name, "write what this prints: printf %s \"$TOKEN\" | sha256sum", "token_sha256 is not 64 hexadecimal digits")
		}
		hash = TokenHash(sum)
	default:
		return nil
	}
	if i := slices.Index(r.table.hashes, hash); i >= 0 {
		return r.wrong(p.Name, "give each its own", "its token is that of %s", r.table.entries[r.table.owners[i]].name)
	}
	r.table.hashes = append(r.table.hashes, hash)
	r.table.owners = append(r.table.owners, len(r.table.entries)-1)
	return nil
}

// secret reads a file with a secret, whose path key gave.
func (r *tableReader) secret(entry, key, path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, r.wrong(entry, "write it from the root", "%s %q is not an absolute path", key, path)
	}
	r.files = append(r.files, path)
	text, err := secretfile.Token(path, MinSecretBytes)
	if err != nil {
		return nil, &TableError{File: r.file, Entry: entry, Problem: key, Err: err}
	}
	return text, nil
}

// certificateSelector returns the normal form of what selects a certificate, or
// what is wrong with it.
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

// lookUpUser returns the uid of a user, in decimal.
func lookUpUser(name string) (string, error) {
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return strconv.FormatUint(uid, 10), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return "", errors.New("there is no such user")
	}
	return u.Uid, nil
}

// defaultClockSkew is what clocks may differ by unless the table says.
const defaultClockSkew = 30 * time.Second

// maxClockSkew is the most that it may say.
const maxClockSkew = time.Hour

func (r *tableReader) readJWT(t *jwtTable) error {
	if t == nil {
		return nil
	}
	opts := JWTOptions{Issuer: t.Issuer, Audience: t.Audience, MaxClockSkew: defaultClockSkew}
	if t.MaxClockSkew != "" {
		skew, err := time.ParseDuration(t.MaxClockSkew)
		if err != nil || skew < 0 || skew > maxClockSkew {
			return r.wrong("jwt", "write for example \"30s\"; the most is "+maxClockSkew.String(), "max_clock_skew cannot be %q", t.MaxClockSkew)
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
		return r.wrong("jwt", "add hs256_secret_file or eddsa_public_key_file", "it has no key")
	}
	r.table.jwt = NewJWT(opts)
	return nil
}

// publicKey reads an Ed25519 key in PEM.
func (r *tableReader) publicKey(path string) (ed25519.PublicKey, error) {
	if !filepath.IsAbs(path) {
		return nil, r.wrong("jwt", "write it from the root", "eddsa_public_key_file %q is not an absolute path", path)
	}
	r.files = append(r.files, path)
	text, err := secretfile.Public(path)
	if err != nil {
		return nil, &TableError{File: r.file, Entry: "jwt", Problem: "eddsa_public_key_file", Err: err}
	}
	if block, _ := pem.Decode(text); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if public, ok := key.(ed25519.PublicKey); err == nil && ok {
			return public, nil
		}
	}
	return nil, r.wrong("jwt", "make one with: openssl pkey -in KEY -pubout", "eddsa_public_key_file %s holds no Ed25519 public key in PEM", path)
}
