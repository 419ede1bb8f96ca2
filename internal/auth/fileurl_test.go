package auth_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// kindOf returns the kind of an authentication error; 0 for others.
func kindOf(err error) auth.Kind {
	if typed, ok := errors.AsType[*auth.Error](err); ok {
		return typed.Kind
	}
	return 0
}

func fileURLKeys(t *testing.T, file string) *auth.FileURLKeys {
	t.Helper()
	keys, err := auth.NewFileURLKeys(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func writeKeys(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFileURLKeys_ChangedURL_Rejected(t *testing.T) {
	t.Parallel()
	keys, now, most := fileURLKeys(t, ""), time.Unix(1_000_000, 0), uint64(10)
	signed := auth.FileURL{Method: "PUT", Path: "/a b\n/ü", Expires: now.Add(time.Minute), MaxBytes: &most, Principal: "ci", OnBehalfOf: "eve"}
	got, err := keys.Verify("PUT", signed.Path, keys.Sign(signed), now)
	if err != nil || got.Principal != "ci" || got.OnBehalfOf != "eve" || *got.MaxBytes != most || !got.Expires.Equal(signed.Expires) {
		t.Fatalf("Verify = %+v, %v", got, err)
	}
	for name, change := range map[string]func(method, path *string, query url.Values, keys **auth.FileURLKeys){
		"method":    func(method, _ *string, _ url.Values, _ **auth.FileURLKeys) { *method = "GET" },
		"path":      func(_, path *string, _ url.Values, _ **auth.FileURLKeys) { *path += "x" },
		"expires":   func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Set("expires", "2000000000") },
		"limit":     func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Set("max_bytes", "11") },
		"no limit":  func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Del("max_bytes") },
		"principal": func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Set("principal", "root") },
		"itself":    func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Del("on_behalf_of") },
		"signature": func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Set("signature", "") },
		"garbage":   func(_, _ *string, q url.Values, _ **auth.FileURLKeys) { q.Set("signature", "!") },
		"other run": func(_, _ *string, _ url.Values, keys **auth.FileURLKeys) { *keys = fileURLKeys(t, "") },
	} {
		method, path, query, verifier := "PUT", signed.Path, keys.Sign(signed), keys
		change(&method, &path, query, &verifier)
		if _, err := verifier.Verify(method, path, query, now); kindOf(err) != auth.KindTokenInvalid {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := keys.Verify("PUT", signed.Path, keys.Sign(signed), signed.Expires); kindOf(err) != auth.KindTokenExpired {
		t.Errorf("at its end: %v", err)
	}
}

// A page with many expired URLs does not lock out an address.
func TestAttempts_Verify_CountsInvalidSignaturesOnly(t *testing.T) {
	t.Parallel()
	keys, now, from := fileURLKeys(t, ""), time.Now(), &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	query := keys.Sign(auth.FileURL{Method: "GET", Path: "/f", Expires: now, Principal: "p"})
	attempts := auth.NewAttempts(1, time.Hour, nil)
	for i, test := range []struct {
		path string
		want auth.Kind
	}{
		{"/f", auth.KindTokenExpired}, {"/f", auth.KindTokenExpired}, {"/g", auth.KindTokenInvalid}, {"/f", auth.KindTooManyAttempts},
	} {
		err := attempts.Verify(from, func() error {
			_, err := keys.Verify("GET", test.path, query, now)
			return err
		})
		if kindOf(err) != test.want {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
}

func TestFileURLKeys_File_RotatesAndRevokes(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
	now := time.Now()
	u := auth.FileURL{Method: "GET", Path: "/f", Expires: now.Add(time.Minute), Principal: "p"}
	query := fileURLKeys(t, writeKeys(t, one)).Sign(u)
	for _, test := range []struct {
		lines []string
		valid bool
	}{{[]string{one}, true}, {[]string{two, one}, true}, {[]string{two}, false}} {
		_, err := fileURLKeys(t, writeKeys(t, test.lines...)).Verify("GET", "/f", query, now)
		if (err == nil) != test.valid {
			t.Errorf("with %d keys: %v", len(test.lines), err)
		}
	}
	if _, err := auth.NewFileURLKeys(writeKeys(t, one, "short"), nil); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("a short key: %v", err)
	}
}

func TestFileURL_SetCaller_CredentialsOfSameCaller(t *testing.T) {
	t.Parallel()
	p := func(name string) auth.Principal { return auth.Principal{Name: name} }
	for _, test := range []struct {
		caller auth.Caller
		want   auth.Credentials
	}{
		{auth.Caller{Principal: p("ci")}, auth.Credentials{Known: p("ci")}},
		{auth.Caller{Principal: p("ci/user:eve"), Via: p("ci")}, auth.Credentials{Known: p("ci"), OnBehalfOf: "user:eve"}},
		{auth.Caller{Principal: p("listed"), Via: p("ci")}, auth.Credentials{Known: p("ci"), OnBehalfOf: "listed"}},
		{auth.Caller{Principal: auth.InProcess}, auth.Credentials{InProcess: true}},
		{auth.Caller{Principal: p("eve"), Via: auth.InProcess}, auth.Credentials{InProcess: true, OnBehalfOf: "eve"}},
	} {
		var u auth.FileURL
		u.SetCaller(test.caller)
		if got := u.Credentials(); got.Known != test.want.Known || got.OnBehalfOf != test.want.OnBehalfOf || got.InProcess != test.want.InProcess {
			t.Errorf("%+v: %+v", test.caller, got)
		}
	}
}
