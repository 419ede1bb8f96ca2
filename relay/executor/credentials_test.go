package executor_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/relay/executor"
)

// environment is the environment of a test, with its own home.
type environment map[string]string

func newEnvironment(t *testing.T) environment {
	t.Helper()
	return environment{"HOME": t.TempDir()}
}

func (e environment) get(name string) string { return e[name] }

// signIn writes a sign-in file to the home.
func (e environment) signIn(t *testing.T, mode fs.FileMode, text string) string {
	t.Helper()
	dir := filepath.Join(e["HOME"], ".codex")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, filepath.Join(dir, "auth.json"), mode, text)
}

func writeFile(t *testing.T, path string, mode fs.FileMode, text string) string {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// idToken returns an unsigned token with claims about an account.
func idToken(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none"}`)) + "." + part([]byte(`{"https://api.openai.com/auth":`+claims+`}`)) + ".x"
}

func TestFindCredentials_Order(t *testing.T) {
	e := newEnvironment(t)
	file := writeFile(t, filepath.Join(t.TempDir(), "token"), 0o600, "\n of-the-file \n")
	e[executor.TokenVariable] = " of-the-environment\n"
	path := e.signIn(t, 0o600, `{"tokens":{"access_token":"of-the-sign-in","account_id":"account"}}`)
	elsewhere := t.TempDir()
	writeFile(t, filepath.Join(elsewhere, "auth.json"), 0o600, `{"tokens":{"access_token":"of-another-home"}}`)

	for _, step := range []struct {
		name, token, from string
		file              string
		change            func()
	}{
		{"all", "of-the-file", "the token in " + file, file, func() {}},
		{"no file", "of-the-environment", "the token in " + executor.TokenVariable, "", func() {}},
		{"no variable", "of-the-sign-in", "the sign-in in " + path, "", func() { e[executor.TokenVariable] = "" }},
		{"another home", "of-another-home", "auth.json", "", func() { e[executor.HomeVariable] = elsewhere }},
	} {
		step.change()
		c, err := executor.FindCredentials(executor.Sources{Registry: "https://registry.invalid", TokenFile: step.file, Getenv: e.get})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		header, err := c.Header(t.Context())
		if err != nil || header.Get("Authorization") != "Bearer "+step.token {
			t.Errorf("%s: %v, %v, want %q", step.name, header, err, step.token)
		}
		if !strings.Contains(c.String(), step.from) {
			t.Errorf("%s: from %q, want %q", step.name, c, step.from)
		}
		for _, text := range []string{c.String(), fmt.Sprintf("%v %+v %s %q %#v", c, c, c, c, c)} {
			if strings.Contains(text, step.token) {
				t.Errorf("%s: printed as %s", step.name, text)
			}
		}
	}
}

func TestFindCredentials_None(t *testing.T) {
	for registry, allowed := range map[string]bool{
		"http://127.0.0.1:7430": true, " https://localhost ": true, "http://[::1]": true,
		"https://registry.invalid": false, "http://127.0.0.1.example.org": false, "http://192.0.2.1": false, "": false,
	} {
		c, err := executor.FindCredentials(executor.Sources{Registry: registry, Getenv: newEnvironment(t).get})
		_, refused := errors.AsType[*executor.CredentialsError](err)
		if c != nil || refused == allowed {
			t.Errorf("%q: %v, %v", registry, c, err)
		}
		if !allowed && (!strings.Contains(err.Error(), "remote exec-server registration requires ChatGPT authentication; run `codex login` first") ||
			!strings.Contains(err.Error(), "--remote-token-file")) {
			t.Errorf("%q: %v", registry, err)
		}
	}
	// Without a home there is no sign-in.
	if _, err := executor.FindCredentials(executor.Sources{Registry: "https://registry.invalid", Getenv: environment{}.get}); err == nil {
		t.Error("something was found without a home")
	}
}

func TestToken_Invalid_Fails(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode fs.FileMode, text string) executor.Sources {
		return executor.Sources{TokenFile: writeFile(t, filepath.Join(dir, name), mode, text), Getenv: environment{}.get}
	}
	variable := func(token string) executor.Sources {
		return executor.Sources{Getenv: environment{executor.TokenVariable: token}.get}
	}
	for name, tc := range map[string]struct {
		sources executor.Sources
		text    string
	}{
		"none":               {executor.Sources{TokenFile: filepath.Join(dir, "none"), Getenv: environment{}.get}, "no such file"},
		"others may read it": {file("open", 0o644, "t0psecret"), "chmod 600"},
		"empty":              {file("empty", 0o600, "\n"), "has 0 bytes"},
		"two":                {file("two", 0o600, "t0psecret\nt0psecret"), "more than one token"},
		"not ASCII":          {file("umlaut", 0o600, "t0psecretä"), "more than one token"},
		"two in a variable":  {variable("t0psecret t0psecret"), executor.TokenVariable},
	} {
		c, err := executor.FindCredentials(tc.sources)
		if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || c != nil || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "t0psecret") {
			t.Errorf("%s: %v, %v, want a CredentialsError that says %q", name, c, err, tc.text)
		}
	}
}

func TestSignIn(t *testing.T) {
	for name, tc := range map[string]struct {
		text             string
		account, fedramp string
	}{
		"account":      {`{"OPENAI_API_KEY":null,"tokens":{"id_token":"x","access_token":"token","refresh_token":"r","account_id":"account"},"last_refresh":"x"}`, "account", ""},
		"mode":         {`{"auth_mode":"chatgpt","OPENAI_API_KEY":"sk","tokens":{"access_token":"token","account_id":"account"}}`, "account", ""},
		"another mode": {`{"auth_mode":"chatgptAuthTokens","tokens":{"access_token":"token"}}`, "", ""},
		"fedramp": {`{"tokens":{"access_token":"token","account_id":"account","id_token":"` +
			idToken(`{"chatgpt_account_is_fedramp":true,"chatgpt_account_id":"other"}`) + `"}}`, "account", "true"},
		"account in the id token": {`{"tokens":{"access_token":"token","id_token":"` + idToken(`{"chatgpt_account_id":"other","chatgpt_account_is_fedramp":false}`) + `"}}`, "other", ""},
		"fedramp as text":         {`{"tokens":{"access_token":"token","id_token":"` + idToken(`{"chatgpt_account_is_fedramp":"true"}`) + `"}}`, "", ""},
		"id token of nonsense":    {`{"tokens":{"access_token":"token","id_token":"a.%.c"}}`, "", ""},
	} {
		e := newEnvironment(t)
		e.signIn(t, 0o600, tc.text)
		c, err := executor.FindCredentials(executor.Sources{Registry: "https://registry.invalid", Getenv: e.get})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		header, err := c.Header(t.Context())
		if err != nil || header.Get("Authorization") != "Bearer token" || header.Get("ChatGPT-Account-ID") != tc.account || header.Get("X-OpenAI-Fedramp") != tc.fedramp {
			t.Errorf("%s: %v, %v", name, header, err)
		}
	}
}

func TestSignIn_Invalid_Fails(t *testing.T) {
	const refused = "remote exec-server registration requires ChatGPT authentication; API key and Agent Identity auth are not supported"
	for name, tc := range map[string]struct {
		mode       fs.FileMode
		text, want string
	}{
		"API key":            {0o600, `{"OPENAI_API_KEY":"t0psecret"}`, refused},
		"API key and tokens": {0o600, `{"OPENAI_API_KEY":"t0psecret","tokens":{"access_token":"t0psecret"}}`, refused},
		"mode of API keys":   {0o600, `{"auth_mode":"apikey","tokens":{"access_token":"t0psecret"}}`, refused},
		"agent identity":     {0o600, `{"auth_mode":"agentIdentity","agent_identity":"t0psecret"}`, refused},
		"others may read it": {0o640, `{"tokens":{"access_token":"t0psecret"}}`, "chmod 600"},
		"no JSON":            {0o600, `t0psecret`, "is not a JSON object"},
		"null":               {0o600, `null`, "has no tokens"},
		"no tokens":          {0o600, `{"tokens":null}`, "has no tokens"},
		"no access token":    {0o600, `{"tokens":{"id_token":"t0psecret"}}`, "has no access_token"},
		"two access tokens":  {0o600, `{"tokens":{"access_token":"t0psecret\r\nX: t0psecret"}}`, "has no access_token"},
		"account of lines":   {0o600, `{"tokens":{"access_token":"t0psecret","account_id":"a\r\nX: t0psecret"}}`, "account_id that is not valid"},
	} {
		e := newEnvironment(t)
		e.signIn(t, tc.mode, tc.text)
		// Unusable credentials are an error even where none are needed.
		for _, registry := range []string{"https://registry.invalid", "http://127.0.0.1"} {
			c, err := executor.FindCredentials(executor.Sources{Registry: registry, Getenv: e.get})
			if _, ok := errors.AsType[*executor.CredentialsError](err); !ok || c != nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "t0psecret") {
				t.Errorf("%s: %v, %v, want a CredentialsError that says %q", name, c, err, tc.want)
			}
		}
	}
}

// pausingHandler receives from step before each retry.
type pausingHandler struct {
	slog.Handler
	step <-chan struct{}
}

// Handle implements slog.Handler.
func (h pausingHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if eventKind(r.Message) == retrying {
		<-h.step
	}
	return err
}

// A replaced token is used for the next registration, and a temporarily
// unreadable one is not fatal.
func TestTokenFile_Replaced_IsReread(t *testing.T) {
	path := writeFile(t, filepath.Join(t.TempDir(), "token"), 0o600, "first")
	h := newHub(t)
	h.upgrade = refuseUpgrade
	c, err := executor.FindCredentials(executor.Sources{TokenFile: path, Getenv: environment{}.get})
	if err != nil {
		t.Fatal(err)
	}
	step := make(chan struct{})
	r := h.start(t, func(o *executor.Options) {
		o.Credentials = c
		o.Logger = slog.New(pausingHandler{o.Logger.Handler(), step})
	})
	t.Cleanup(func() { close(step) })
	r.next(registered)
	r.next(retrying)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	step <- struct{}{}
	if e := r.next(retrying); !strings.Contains(e.err.Error(), "chmod 600") {
		t.Errorf("%v, want what is wrong with the file", e.err)
	}
	writeFile(t, path, 0o600, "second")
	step <- struct{}{}
	r.next(registered)
	registrations, _ := h.seen()
	if len(registrations) != 2 || registrations[0].Header.Get("Authorization") != "Bearer first" || registrations[1].Header.Get("Authorization") != "Bearer second" {
		t.Errorf("%d registrations, the last with %q", len(registrations), registrations[len(registrations)-1].Header.Get("Authorization"))
	}
}
