package executor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/internal/wsconn"
)

// Environment variables with credentials. The names are those of the reference
// implementation.
const (
	// TokenVariable has a bearer token.
	TokenVariable = "CODEX_EXEC_SERVER_REMOTE_BEARER_TOKEN"
	// AccessTokenVariable has the signed token of an agent identity, which
	// contains its private key.
	AccessTokenVariable = "CODEX_ACCESS_TOKEN"
	// HomeVariable has the directory of the sign-in file.
	HomeVariable = "CODEX_HOME"
	// KeysVariable has the base URL of the keys that sign agent identities.
	KeysVariable = "CODEX_AGENT_IDENTITY_JWKS_BASE_URL"
	// TasksVariable has the base URL for registering tasks of agent identities;
	// empty means that of KeysVariable.
	TasksVariable = "CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL"
)

// SecretVariables returns the variables that hold secrets of this package. They
// must not be passed on to processes.
func SecretVariables() []string { return []string{TokenVariable, AccessTokenVariable} }

// Credentials authenticate an executor at the registry.
type Credentials interface {
	// Header returns the headers for one registration. It may make requests, and
	// blocks until they are answered or ctx ends.
	Header(ctx context.Context) (http.Header, error)
	// String describes the source of the credentials, without secrets.
	String() string
}

// Sources say where credentials may come from.
type Sources struct {
	// Registry is the base URL of the registry.
	Registry string
	// TokenFile is a file with a bearer token; empty for none.
	TokenFile string
	// AgentIdentity uses only the agent identity in the environment.
	AgentIdentity bool
	// Getenv reads the environment; nil is os.Getenv.
	Getenv func(name string) string
}

// FindCredentials returns the first credentials found of
//   - the agent identity in [AccessTokenVariable], if requested,
//   - the token in TokenFile,
//   - the token in [TokenVariable],
//   - the tokens in auth.json in the directory that [HomeVariable] names, or
//     else in ~/.codex.
//
// It returns nil if there are none and the registry is on loopback, where none
// may be needed. Files are read again for each registration, so that replaced
// tokens are used; but invalid credentials fail here already, with a
// [*CredentialsError].
func FindCredentials(s Sources) (Credentials, error) {
	if s.Getenv == nil {
		s.Getenv = os.Getenv
	}
	if s.AgentIdentity {
		if s.TokenFile != "" {
			return nil, &CredentialsError{Problem: "--use-agent-identity-auth and --remote-token-file exclude each other", permanent: true}
		}
		identity, err := newIdentity(s.Getenv)
		if err != nil {
			return nil, err
		}
		return identity, nil
	}
	if s.TokenFile != "" {
		return validCredentials(tokenFile(s.TokenFile))
	}
	if token := strings.TrimSpace(s.Getenv(TokenVariable)); token != "" {
		return validCredentials(environmentToken(token))
	}
	return s.findSignIn()
}

// findSignIn looks for the sign-in file.
func (s Sources) findSignIn() (Credentials, error) {
	dir := s.Getenv(HomeVariable)
	if home := s.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".codex")
	}
	if dir != "" {
		file := signInFile(filepath.Join(dir, "auth.json"))
		if _, err := os.Lstat(string(file)); !errors.Is(err, fs.ErrNotExist) {
			return validCredentials(file)
		}
	}
	base, err := url.Parse(strings.TrimSpace(s.Registry))
	if err == nil && wsconn.IsLoopback(base.Hostname()) {
		return nil, nil
	}
	return nil, noCredentials()
}

func noCredentials() error {
	return &CredentialsError{Problem: "remote exec-server registration requires ChatGPT authentication; run `codex login` first",
		Fix: "for your own hub, set --remote-token-file to a file with a token", permanent: true}
}

func validCredentials(c Credentials) (Credentials, error) {
	if _, err := c.Header(context.Background()); err != nil {
		return nil, err
	}
	return c, nil
}

// tokenFile is the path of a file with a bearer token.
type tokenFile string

// Header implements Credentials.
func (f tokenFile) Header(context.Context) (http.Header, error) {
	token, err := secretfile.Token(string(f), 1)
	if err != nil {
		return nil, &CredentialsError{Problem: "the token for the registry is unusable", Err: err}
	}
	if !isToken(token) {
		return nil, &CredentialsError{Problem: string(f) + " contains more than one token", Fix: "the file must contain only the token"}
	}
	return bearer(string(token)), nil
}

// String implements Credentials.
func (f tokenFile) String() string { return "the token in " + string(f) }

// environmentToken is a bearer token from the environment.
type environmentToken string

// Header implements Credentials.
func (t environmentToken) Header(context.Context) (http.Header, error) {
	if !isToken([]byte(t)) {
		return nil, &CredentialsError{Problem: TokenVariable + " is not a single token", permanent: true}
	}
	return bearer(string(t)), nil
}

// String implements Credentials.
func (t environmentToken) String() string { return "the token in " + TokenVariable }

// GoString keeps the token out of %#v.
func (t environmentToken) GoString() string { return t.String() }

func bearer(token string) http.Header {
	return http.Header{"Authorization": {"Bearer " + token}}
}

// isToken reports whether text is a single token that can be sent in a header.
func isToken(text []byte) bool {
	return len(text) > 0 && !bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
