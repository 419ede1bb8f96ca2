package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

const websocketToken = "websocket-token-0123456789-0123456789"

// secretFile writes a file that only its owner can read.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func withTokens(t *testing.T, table string, ws auth.WebsocketOptions) *auth.Authenticator {
	t.Helper()
	a, err := auth.NewAuthenticator(table, ws, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// expectOf expects a caller, or an error of a kind.
func expectOf(t *testing.T, a *auth.Authenticator, c auth.Credentials, want string, kind auth.Kind) {
	t.Helper()
	caller, err := a.Authenticate(c)
	if kind != 0 {
		want = ""
	}
	expectCaller(t, caller, err, want, kind)
}

var all, everything = auth.All.String(), auth.Everything.String()

func TestWebsocketTokens(t *testing.T) {
	capability := auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: secretFile(t, " "+websocketToken+"\n")}
	hashed := auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenSHA256: strings.ToUpper(sha256Of(websocketToken))}
	short := auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenSHA256: sha256Of("short")}
	signed := auth.WebsocketOptions{Auth: auth.WebsocketSignedToken, SharedSecretFile: secretFile(t, string(secret)), MaxClockSkew: 30 * time.Second}
	strict := signed
	strict.Issuer, strict.Audience, strict.MaxClockSkew = "iss1", "aud1", 0
	now := time.Now().Unix()
	until := func(seconds int64) claims { return claims{"exp": now + seconds} }
	named := until(60).with("iss", "iss1").with("aud", "aud1")
	for name, tc := range map[string]struct {
		ws    auth.WebsocketOptions
		token string
		kind  auth.Kind // 0: accepted
	}{
		"token":                       {capability, websocketToken, 0},
		"token by its hash":           {hashed, websocketToken, 0},
		"wrong token":                 {capability, websocketToken + "x", auth.KindTokenInvalid},
		"wrong for the hash":          {hashed, "x", auth.KindTokenInvalid},
		"short token":                 {short, "short", auth.KindTokenInvalid},
		"signed":                      {signed, hs256(until(60)), 0},
		"signed with a subject":       {signed, hs256(until(60).with("sub", "x").with("iss", "i").with("aud", "a")), 0},
		"expired in skew":             {signed, hs256(until(-10)), 0},
		"expired":                     {signed, hs256(until(-40)), auth.KindTokenExpired},
		"expired, no skew":            {strict, hs256(named.with("exp", now-3)), auth.KindTokenExpired},
		"not yet":                     {signed, hs256(until(300).with("nbf", now+120)), auth.KindTokenNotYetValid},
		"not yet, in skew":            {signed, hs256(until(300).with("nbf", now+20)), 0},
		"no end":                      {signed, hs256(claims{"sub": "x"}), auth.KindTokenInvalid},
		"end as text":                 {signed, hs256(claims{"exp": "9999999999"}), auth.KindTokenInvalid},
		"other algorithm":             {signed, eddsa(until(60)), auth.KindTokenInvalid},
		"no token":                    {signed, "a.b.c", auth.KindTokenInvalid},
		"issuer and audience":         {strict, hs256(named), 0},
		"audience in a list":          {strict, hs256(named.with("aud", []string{"z", "aud1"})), 0},
		"other issuer":                {strict, hs256(named.with("iss", "no")), auth.KindIssuerMismatch},
		"other audience":              {strict, hs256(named.with("aud", "no")), auth.KindAudienceMismatch},
		"neither issuer nor audience": {strict, hs256(until(60)), auth.KindIssuerMismatch},
		"signed, not expected":        {capability, hs256(until(60)), auth.KindTokenInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			a := withTokens(t, "", tc.ws)
			if !a.HasWebsocketTokens() || a.HasTable() {
				t.Error("there are no websocket tokens, or there is a table")
			}
			expectOf(t, a, auth.Credentials{Token: tc.token, Loopback: true}, "ws: "+all, tc.kind)
			expectOf(t, a, auth.Credentials{Loopback: true}, "loopback: "+everything, 0)
			expectOf(t, a, auth.Credentials{}, "", auth.KindCredentialMissing)
		})
	}
	if withTokens(t, "", auth.WebsocketOptions{Auth: auth.WebsocketAuthOff}).HasWebsocketTokens() {
		t.Error("off asks for tokens")
	}
}

// Tokens of either kind are accepted, and the table determines permissions.
func TestWebsocketTokens_WithTable(t *testing.T) {
	ws := auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: secretFile(t, websocketToken)}
	a := withTokens(t, directory(t, table), ws)
	expectOf(t, a, auth.Credentials{Token: websocketToken}, "ws: "+all, 0)
	expectOf(t, a, auth.Credentials{Token: ciToken}, "ci: view, start", 0)
	expectOf(t, a, auth.Credentials{Token: "x"}, "", auth.KindTokenInvalid)
	expectOf(t, a, auth.Credentials{Token: hs256(claims{"exp": 1, "sub": "x"})}, "", auth.KindTokenExpired)
	expectOf(t, a, auth.Credentials{Token: websocketToken, OnBehalfOf: "ci"}, "", auth.KindOnBehalfOfRefused)
	expectOf(t, a, auth.Credentials{Token: websocketToken, Certificates: certificate("ci", unchanged)}, "", auth.KindCredentialsDisagree)
	expectOf(t, a, auth.Credentials{Token: websocketToken, Certificates: certificate("x", unchanged)}, "ws: "+all, 0)

	listed := withTokens(t, directory(t, table+"\n[[principal]]\nname='ws'\nallow=['view']\n"), ws)
	expectOf(t, listed, auth.Credentials{Token: websocketToken}, "ws: view", 0)

	signed := auth.WebsocketOptions{Auth: auth.WebsocketSignedToken, SharedSecretFile: secretFile(t, string(secret)), Issuer: "other"}
	both := withTokens(t, directory(t, table), signed)
	good := claims{"exp": time.Now().Unix() + 60}
	expectOf(t, both, auth.Credentials{Token: hs256(good.with("iss", "other"))}, "ws: "+all, 0)
	expectOf(t, both, auth.Credentials{Token: hs256(good.with("iss", "issuer").with("aud", "server").with("sub", "admin@example"))}, "admin: "+all, 0)
}

// A known caller is not authenticated again, but has the current permissions of
// the table.
func TestAuthenticate_Known(t *testing.T) {
	file := directory(t, table)
	a := withTokens(t, file, auth.WebsocketOptions{})
	known := func(name string) auth.Credentials { return auth.Credentials{Known: auth.Principal{Name: name}} }
	expectOf(t, a, known("ci"), "ci: view, start", 0)
	expectOf(t, a, known("ws"), "", auth.KindNotListed)
	expectOf(t, a, known("loopback"), "", auth.KindNotListed)
	gateway := known("gateway")
	gateway.OnBehalfOf = "user:ann"
	expectOf(t, a, gateway, "gateway/user:ann via gateway: view, control, session", 0)
	if caller, err := a.Authenticate(gateway); err != nil || caller.Self().Name != "gateway" {
		t.Errorf("in person it is %v, %v", caller.Self(), err)
	}
	if caller, err := a.Authenticate(known("ci")); err != nil || caller.Self().Name != "ci" {
		t.Errorf("in person it is %v, %v", caller.Self(), err)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), `name = "ci"`, `name = "cd"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := a.Authenticate(known("ci")); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a principal removed from the table is accepted")
		}
	}
	expectOf(t, a, known("ci"), "", auth.KindNotListed)

	open := withTokens(t, "", auth.WebsocketOptions{})
	expectOf(t, open, known("loopback"), "loopback: "+everything, 0)
}

// The rendezvous authenticates callers from the relay, so the table need not list them, but
// may.
func TestRelay(t *testing.T) {
	relayed := auth.Credentials{Known: auth.Relay}
	expectOf(t, withTokens(t, "", auth.WebsocketOptions{}), relayed, "relay: "+all, 0)
	a := withTokens(t, directory(t, table), auth.WebsocketOptions{})
	expectOf(t, a, relayed, "relay: "+all, 0)
	relayed.OnBehalfOf = "user:ann"
	expectOf(t, a, relayed, "", auth.KindOnBehalfOfRefused)
	listed := withTokens(t, directory(t, table+"\n[[principal]]\nname='relay'\nallow=['view']\n"), auth.WebsocketOptions{})
	expectOf(t, listed, auth.Credentials{Known: auth.Relay}, "relay: view", 0)
	expectOf(t, listed, auth.Credentials{Loopback: true}, "local: view", 0)
}

func TestWebsocketTokens_Invalid_Fail(t *testing.T) {
	openFile := secretFile(t, websocketToken)
	if err := os.Chmod(openFile, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ws       auth.WebsocketOptions
		wantText string
	}{
		"no file":        {auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: "/nonexistent"}, "/nonexistent cannot be opened: no such file"},
		"empty file":     {auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: secretFile(t, "\n")}, "has 0 bytes"},
		"two tokens":     {auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: secretFile(t, websocketToken+" "+websocketToken)}, "cannot be sent"},
		"file of others": {auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenFile: openFile}, "chmod 600"},
		"no hash":        {auth.WebsocketOptions{Auth: auth.WebsocketCapabilityToken, TokenSHA256: "zz"}, "64 hexadecimal digits"},
		"short secret":   {auth.WebsocketOptions{Auth: auth.WebsocketSignedToken, SharedSecretFile: secretFile(t, "short")}, "has 5 bytes; a secret needs at least 32"},
		"no way":         {auth.WebsocketOptions{Auth: "basic"}, `"basic"`},
	} {
		_, err := auth.NewAuthenticator("", tc.ws, nil)
		var typed *auth.WebsocketError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), tc.wantText) || strings.Contains(err.Error(), websocketToken) {
			t.Errorf("%s: %v, want an error that contains %q", name, err, tc.wantText)
		}
	}
}
