package auth_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/auth"
)

func TestParseAuthorization(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer abc":                 "abc",
		"bearer abc":                 "abc",
		"BEARER abc":                 "abc",
		"bEaReR abc":                 "abc",
		"Bearer   abc":               "abc",
		"Bearer abc  ":               "abc",
		"Bearer a.b-c_d~e+f/g=":      "a.b-c_d~e+f/g=",
		"Bearer " + long("x", 60000): long("x", 60000),
		"":                           "",
		"Bearer":                     "",
		"Bearer ":                    "",
		"Bearerabc":                  "",
		"abc":                        "",
		" Bearer abc":                "",
		"Bearer\tabc":                "",
		"Bearer a b":                 "",
		"Bearer a,b":                 "",
		"Bearer a\x00b":              "",
		"Bearer a\nb":                "",
		"Bearer ä":                   "",
		"Bearer \"abc\"":             "",
		"Basic YTpi":                 "",
		"Bearer, Bearer abc":         "",
		"Bearer abc, Bearer abc":     "",
		"Bear er abc":                "",
	} {
		token, err := auth.ParseAuthorization([]string{header})
		if want != "" {
			if err != nil || token != want {
				t.Errorf("%.40q = %.40q, %v, want %.40q", header, token, err, want)
			}
			continue
		}
		var typed *auth.Error
		if !errors.As(err, &typed) || typed.Kind != auth.KindHeaderInvalid || token != "" {
			t.Errorf("%q = %q, %v, want an Error of kind %v", header, token, err, auth.KindHeaderInvalid)
		}
		if err != nil && strings.Contains(err.Error(), "abc") {
			t.Errorf("%q: the error %q repeats what was sent", header, err)
		}
	}
	if token, err := auth.ParseAuthorization(nil); token != "" || err != nil {
		t.Errorf("no header = %q, %v, want no token", token, err)
	}
	var typed *auth.Error
	if _, err := auth.ParseAuthorization([]string{"Bearer abc", "Bearer abc"}); !errors.As(err, &typed) || typed.Kind != auth.KindHeaderInvalid {
		t.Errorf("two headers: %v", err)
	}
}

func FuzzParseAuthorization(f *testing.F) {
	for _, seed := range []string{"Bearer abc", "bearer  x=", "Basic x", "", " ", "Bearer \x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, err := auth.ParseAuthorization([]string{header})
		if (token == "") != (err != nil) {
			t.Fatalf("%q = %q, %v: exactly one of them", header, token, err)
		}
		if err == nil {
			again, err := auth.ParseAuthorization([]string{"Bearer " + token})
			if err != nil || again != token || strings.ContainsAny(token, " \t\r\n,\"\x00") {
				t.Errorf("%q = %q, which parses as %q, %v", header, token, again, err)
			}
		}
	})
}

func long(s string, n int) string { return strings.Repeat(s, n) }

func TestFindToken(t *testing.T) {
	var hashes []auth.TokenHash
	for _, token := range []string{"one", "two", "three"} {
		hashes = append(hashes, auth.HashToken([]byte(token)))
	}
	for token, want := range map[string]int{"one": 0, "two": 1, "three": 2, "four": -1, "": -1, "One": -1, "one ": -1} {
		if got := auth.FindToken(hashes, token); got != want {
			t.Errorf("FindToken(%q) = %d, want %d", token, got, want)
		}
	}
	if got := auth.FindToken(nil, "one"); got != -1 {
		t.Errorf("FindToken among none = %d", got)
	}
}

func TestPermissions(t *testing.T) {
	set, _, ok := auth.ParsePermissions([]string{"view", "session"})
	if !ok || set != auth.View|auth.Session || set.String() != "view, session" || set.Has(auth.Start) || !set.Has(auth.View) {
		t.Errorf("view and session = %v, %v", set, ok)
	}
	if set, _, ok := auth.ParsePermissions([]string{"all"}); !ok || set != auth.All || set.String() != "view, start, control, session, environment, read_files, write_files, http, ports" {
		t.Errorf("all = %v, %v", set, ok)
	}
	if set, unknown, ok := auth.ParsePermissions([]string{"view", "Start"}); ok || unknown != "Start" || set != 0 || set.String() != "none" {
		t.Errorf("an unknown one = %v, %q, %v", set, unknown, ok)
	}
}

func TestKinds_HaveNames(t *testing.T) {
	seen := map[string]bool{}
	for kind := auth.Kind(1); kind < auth.KindEnd; kind++ {
		if name := kind.String(); strings.HasPrefix(name, "kind ") || name == "" || seen[name] {
			t.Errorf("kind %d is called %q", int(kind), name)
		} else {
			seen[name] = true
		}
	}
	if auth.Kind(0).String() != "kind 0" || auth.Kind(1000).String() != "kind 1000" {
		t.Error("kinds that do not exist have names")
	}
}
