package auth_test

import (
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/osuser"
)

// runAsTable has principals that may start processes as other users; other may not.
const runAsTable = `
[[principal]]
name = "ci"
token_file = "DIR/ci.token"
allow = ["all"]
run_as = ["nobody", "1234:0"]
on_behalf_of = ["*"]

[[principal]]
name = "other"
token_file = "DIR/other.token"
allow = ["all"]

[[principal]]
name = "few"
allow = ["all"]
run_as = ["65534:65534", "1234"]

[[principal]]
name = "everybody"
allow = ["all"]
run_as = ["*"]
`

func TestAuthenticate_RunAs(t *testing.T) {
	table, _, err := auth.ReadTable(directory(t, runAsTable))
	if err != nil {
		t.Fatal(err)
	}
	ci, inProcess := auth.Credentials{Token: ciToken}, auth.Credentials{InProcess: true}
	for _, tc := range []struct {
		name       string
		c          auth.Credentials
		onBehalfOf string
		allowed    []string // of users
	}{
		{"ci", ci, "", []string{"nobody", "65534:65534", "1234:0"}},
		{"other", auth.Credentials{Token: otherToken}, "", nil},
		{"ci for other", ci, "other", nil},
		{"ci for few", ci, "few", []string{"65534:65534"}},
		{"ci for everybody", ci, "everybody", []string{"nobody", "65534:65534", "1234:0"}},
		{"ci for another one", ci, "x", []string{"nobody", "65534:65534", "1234:0"}},
		{"this program for few", inProcess, "few", []string{"65534:65534", "1234", "1234:1234"}},
		{"this program", inProcess, "", users},
	} {
		tc.c.OnBehalfOf = tc.onBehalfOf
		caller, err := table.Authenticate(tc.c)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		expectRunAs(t, tc.name, caller, tc.allowed)
	}
}

// users are asked for by expectRunAs, beside that of this process.
var users = []string{"nobody", "65534:65534", "nobody:0", "1234", "1234:1234", "1234:0", "1"}

func expectRunAs(t *testing.T, name string, caller auth.Caller, want []string) {
	t.Helper()
	var allowed []string
	for _, text := range append([]string{"root"}, users...) {
		u, err := osuser.Lookup(text)
		if err != nil {
			t.Fatal(err)
		}
		if caller.RunAs.Allows(u) {
			allowed = append(allowed, text)
		}
	}
	if got := strings.Join(allowed, " "); got != strings.Join(append([]string{"root"}, want...), " ") {
		t.Errorf("%s may start processes as %s; want root and %v", name, got, want)
	}
}

// A caller that no table restricts can start processes as any user.
func TestAuthenticate_WithoutTable_RunAsAnybody(t *testing.T) {
	a, err := auth.NewAuthenticator("", auth.WebsocketOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]auth.Credentials{"loopback": {Loopback: true}, "unix": {Peer: &auth.Peer{}}, "in process": {InProcess: true, OnBehalfOf: "x"}} {
		caller, err := a.Authenticate(c)
		if err != nil {
			t.Fatal(err)
		}
		expectRunAs(t, name, caller, users)
	}
}
