package auth_test

import (
	"errors"
	"testing"

	"github.com/execwire/execwire/internal/auth"
)

func member(t *testing.T, file string, c auth.Credentials) (auth.Member, error) {
	t.Helper()
	a, err := auth.NewAuthenticator(file, auth.WebsocketOptions{}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return a.Member(c)
}

func TestMember_WithTable(t *testing.T) {
	file := directory(t, `
[[principal]]
name = "fleet"
token_file = "DIR/ci.token"
act_as_executors = ["build-*", "gpu"]

[[principal]]
name = "agent"
token_file = "DIR/other.token"
connect_to_executors = ["build-?"]
allow = ["view"]

[[principal]]
name = "server"
loopback = true
allow = ["all"]
`)
	for _, tc := range []struct {
		shown          auth.Credentials
		name, executor string
		acts, connects bool
	}{
		{auth.Credentials{Token: ciToken}, "fleet", "build-1", true, false},
		{auth.Credentials{Token: ciToken}, "fleet", "build-", true, false},
		{auth.Credentials{Token: ciToken}, "fleet", "gpu", true, false},
		{auth.Credentials{Token: ciToken}, "fleet", "gpu2", false, false},
		{auth.Credentials{Token: otherToken}, "agent", "build-1", false, true},
		{auth.Credentials{Token: otherToken}, "agent", "build-12", false, false},
		{auth.Credentials{Known: auth.Principal{Name: "agent"}}, "agent", "build-1", false, true},
		{auth.Credentials{Token: otherToken, OnBehalfOf: "fleet"}, "agent", "gpu", false, false},
		{auth.Credentials{Loopback: true}, "server", "gpu", false, false},
	} {
		m, err := member(t, file, tc.shown)
		if err != nil || m.Principal.Name != tc.name || m.MayActAs(tc.executor) != tc.acts || m.MayConnectTo(tc.executor) != tc.connects {
			t.Errorf("%+v with %s: %+v, %v", tc.shown, tc.executor, m, err)
		}
	}
	// At a server the principal of the relay needs no entry. At a hub it is a principal like others.
	if m, err := member(t, file, auth.Credentials{Known: auth.Relay}); err == nil || m.MayActAs("gpu") || m.MayConnectTo("gpu") {
		t.Errorf("a principal called relay that is not listed: %+v, %v", m, err)
	}
	for kind, shown := range map[auth.Kind]auth.Credentials{
		auth.KindCredentialMissing: {},
		auth.KindTokenInvalid:      {Token: sumToken, Loopback: true},
		auth.KindNotListed:         {Known: auth.Principal{Name: "gone"}},
	} {
		var typed *auth.Error
		if m, err := member(t, file, shown); !errors.As(err, &typed) || typed.Kind != kind || m.MayActAs("gpu") || m.MayConnectTo("gpu") {
			t.Errorf("%+v: %+v, %v, want %v", shown, m, err, kind)
		}
	}
}

func TestMember_WithoutTable(t *testing.T) {
	m, err := member(t, "", auth.Credentials{Loopback: true})
	if err != nil || m.Principal != auth.Loopback || !m.MayActAs("any") || !m.MayConnectTo("any") {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := member(t, "", auth.Credentials{}); err == nil {
		t.Errorf("a caller from another host is %+v", m)
	}
}
