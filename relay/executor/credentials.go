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

// Variables of the environment that credentials are read from. The reference
// implementation knows them by these names.
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
	// TasksVariable has the base URL where agent identities register tasks; that
	// of KeysVariable if it is empty.
	TasksVariable = "CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL"
)

// SecretVariables are the variables that hold secrets of this package, which
// no process of a user may get.
func SecretVariables() []string { return []string{TokenVariable, AccessTokenVariable} }

// Credentials are what an executor shows to the registry.
type Credentials interface {
	// Header returns the headers that show them, for one registration. It may
	// make requests, and blocks until they are answered or ctx is over.
	Header(ctx context.Context) (http.Header, error)
	// String says where they are from, and nothing of them.
	String() string
}

// Sources say where credentials may come from.
type Sources struct {
	// Registry is the base URL of the registry.
	Registry string
	// TokenFile is a file with a bearer token; empty for none.
	TokenFile string
	// AgentIdentity takes the agent identity in the environment and nothing else.
	AgentIdentity bool
	// Getenv reads the environment; nil is os.Getenv.
	Getenv func(name string) string
}

// FindCredentials returns the first that there are of
//   - the agent identity in [AccessTokenVariable], if that is asked for,
//   - the token in TokenFile,
//   - the token in [TokenVariable],
//   - the tokens in auth.json in the directory that [HomeVariable] names, or
//     else in ~/.codex.
//
// It returns nil if there are none and the registry is on loopback, which may
// want none. Files are read again at each registration, so that a token that was
// replaced is used; but what is wrong is told here already, as a
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
		return checkedCredentials(tokenFile(s.TokenFile))
	}
	if token := strings.TrimSpace(s.Getenv(TokenVariable)); token != "" {
		return checkedCredentials(environmentToken(token))
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
			return checkedCredentials(file)
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
		Fix: "a hub of your own takes the token in the file that --remote-token-file names", permanent: true}
}

func checkedCredentials(c Credentials) (Credentials, error) {
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
		return nil, &CredentialsError{Problem: "the token for the registry cannot be used", Err: err}
	}
	if !isToken(token) {
		return nil, &CredentialsError{Problem: string(f) + " holds more than one token", Fix: "leave nothing but the token in it"}
	}
	return bearer(string(token)), nil
}

// String implements Credentials.
func (f tokenFile) String() string { return "the token in " + string(f) }

// environmentToken is a bearer token that was in the environment.
type environmentToken string

// Header implements Credentials.
func (t environmentToken) Header(context.Context) (http.Header, error) {
	if !isToken([]byte(t)) {
		return nil, &CredentialsError{Problem: TokenVariable + " holds something else than one token", permanent: true}
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

// isToken reports whether text may be one token in a header.
func isToken(text []byte) bool {
	return len(text) > 0 && !bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
