package auth_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// table has a principal for every kind of credential. SUM is the hash of
// sumToken, PIN that of pinned.
const table = `
[jwt]
hs256_secret_file = "DIR/hs256"
eddsa_public_key_file = "DIR/eddsa.pem"
issuer = "issuer"
audience = "server"
max_clock_skew = "1s"

[[principal]]
name = "ci"
token_file = "DIR/ci.token"
certificates = ["dns:ci.example", "uri:spiffe://x/ci", "cn:ci"]
allow = ["view", "start"]

[[principal]]
name = "gateway"
token_file = "DIR/other.token"
allow = ["view", "control", "session"]
on_behalf_of = ["user:*", "ci"]

[[principal]]
name = "summed"
token_sha256 = "SUM"
allow = ["environment"]

[[principal]]
name = "pinned"
certificates = ["sha256:PIN"]
allow = ["view"]

[[principal]]
name = "admin"
unix_users = ["root", "1234"]
jwt_subjects = ["admin@example"]
allow = ["all"]

[[principal]]
name = "local"
loopback = true
allow = ["view"]
`

func certificate(name string, change func(*x509.Certificate)) []*x509.Certificate {
	c := &x509.Certificate{
		Raw: []byte(name), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: name},
	}
	change(c)
	return []*x509.Certificate{c}
}

func unchanged(*x509.Certificate) {}

func newAuthenticator(t *testing.T) *auth.Authenticator {
	t.Helper()
	a, err := auth.NewAuthenticator(directory(t, table), auth.WebsocketOptions{}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTable_Authenticate(t *testing.T) {
	a := newAuthenticator(t)
	inAnHour := time.Now().Add(time.Hour).Unix()
	signed := claims{"iss": "issuer", "aud": "server", "sub": "admin@example", "exp": inAnHour}
	uri, _ := url.Parse("spiffe://x/ci")
	root, other := &auth.Peer{UID: 0}, &auth.Peer{UID: 77}
	both := certificate("x", func(c *x509.Certificate) { c.DNSNames = []string{"ci.example"}; c.Raw = []byte("raw") })
	for name, tc := range map[string]struct {
		show auth.Credentials
		want string // the principal and its permissions
		kind auth.Kind
	}{
		"token":                      {auth.Credentials{Token: ciToken}, "ci: view, start", 0},
		"hashed token":               {auth.Credentials{Token: sumToken}, "summed: environment", 0},
		"signed token":               {auth.Credentials{Token: hs256(signed)}, "admin: " + auth.All.String(), 0},
		"signed, public key":         {auth.Credentials{Token: eddsa(signed)}, "admin: " + auth.All.String(), 0},
		"certificate by dns":         {auth.Credentials{Certificates: certificate("x", func(c *x509.Certificate) { c.DNSNames = []string{"CI.example"} })}, "ci: view, start", 0},
		"certificate by uri":         {auth.Credentials{Certificates: certificate("x", func(c *x509.Certificate) { c.URIs = []*url.URL{uri} })}, "ci: view, start", 0},
		"certificate by cn":          {auth.Credentials{Certificates: certificate("ci", unchanged)}, "ci: view, start", 0},
		"certificate by fingerprint": {auth.Credentials{Certificates: certificate("y", func(c *x509.Certificate) { c.Raw = []byte("raw") })}, "pinned: view", 0},
		"unix user by name":          {auth.Credentials{Peer: root}, "admin: " + auth.All.String(), 0},
		"unix user by number":        {auth.Credentials{Peer: &auth.Peer{UID: 1234}}, "admin: " + auth.All.String(), 0},
		"loopback":                   {auth.Credentials{Loopback: true}, "local: view", 0},
		"in this program":            {auth.Credentials{InProcess: true}, "in-process: " + auth.Everything.String(), 0},
		"token by a unix socket":     {auth.Credentials{Token: ciToken, Peer: root}, "ci: view, start", 0},
		"token on loopback":          {auth.Credentials{Token: ciToken, Loopback: true}, "ci: view, start", 0},
		"token and its certificate":  {auth.Credentials{Token: ciToken, Certificates: certificate("ci", unchanged)}, "ci: view, start", 0},
		"token, certificate of none": {auth.Credentials{Token: ciToken, Certificates: certificate("x", unchanged)}, "ci: view, start", 0},

		"nothing":                        {auth.Credentials{}, "", auth.KindCredentialMissing},
		"unlisted user":                  {auth.Credentials{Peer: other}, "", auth.KindCredentialMissing},
		"wrong token":                    {auth.Credentials{Token: "x"}, "", auth.KindTokenInvalid},
		"wrong token, root":              {auth.Credentials{Token: "x", Peer: root}, "", auth.KindTokenInvalid},
		"wrong token, loopback":          {auth.Credentials{Token: "x", Loopback: true}, "", auth.KindTokenInvalid},
		"wrong token, certificate":       {auth.Credentials{Token: "x", Certificates: certificate("ci", unchanged)}, "", auth.KindTokenInvalid},
		"expired token, root":            {auth.Credentials{Token: hs256(signed.with("exp", 1)), Peer: root}, "", auth.KindTokenExpired},
		"signed for an unlisted subject": {auth.Credentials{Token: hs256(signed.with("sub", "x"))}, "", auth.KindNotListed},
		"other issuer":                   {auth.Credentials{Token: hs256(signed.with("iss", "x"))}, "", auth.KindIssuerMismatch},
		"token of another":               {auth.Credentials{Token: sumToken, Certificates: certificate("ci", unchanged)}, "", auth.KindCredentialsDisagree},
		"unlisted certificate":           {auth.Credentials{Certificates: certificate("x", unchanged), Loopback: true}, "", auth.KindNotListed},
		"certificate of two":             {auth.Credentials{Certificates: both}, "", auth.KindCredentialsDisagree},
		"certificate that expired":       {auth.Credentials{Certificates: certificate("ci", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })}, "", auth.KindCertificateExpired},
		"expired certificate, token":     {auth.Credentials{Token: ciToken, Certificates: certificate("x", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })}, "", auth.KindCertificateExpired},
		"certificate before its time":    {auth.Credentials{Certificates: certificate("ci", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })}, "", auth.KindCertificateExpired},
		"name in another field":          {auth.Credentials{Certificates: certificate("ci.example", unchanged)}, "", auth.KindNotListed},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := a.Authenticate(tc.show)
			expectCaller(t, caller, err, tc.want, tc.kind)
			if err != nil && (strings.Contains(err.Error(), ciToken) || strings.Contains(err.Error(), sumToken)) {
				t.Errorf("%q repeats a token", err)
			}
		})
	}
}

func expectCaller(t *testing.T, caller auth.Caller, err error, want string, kind auth.Kind) {
	t.Helper()
	if want == "" {
		var typed *auth.Error
		if !errors.As(err, &typed) || typed.Kind != kind || !reflect.DeepEqual(caller, auth.Caller{}) {
			t.Errorf("got %+v, %v, want no caller and an Error of kind %v", caller, err, kind)
		}
		return
	}
	got := caller.Principal.String()
	if !caller.Via.IsZero() {
		got += " via " + caller.Via.String()
	}
	if got += ": " + caller.May.String(); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestOnBehalfOf(t *testing.T) {
	listed := newAuthenticator(t)
	open, err := auth.NewAuthenticator("", auth.WebsocketOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := auth.Everything.String()
	for name, tc := range map[string]struct {
		a    *auth.Authenticator
		show auth.Credentials
		want string
	}{
		"unlisted principal":         {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "user:ann"}, "gateway/user:ann via gateway: view, control, session"},
		"listed principal":           {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "ci"}, "ci via gateway: view"},
		"not matching":               {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "admin"}, ""},
		"itself":                     {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "gateway"}, ""},
		"slash":                      {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "user:a/b"}, ""},
		"control":                    {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "user:a\n"}, ""},
		"long":                       {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "user:" + strings.Repeat("x", 123)}, ""},
		"as long as may be":          {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "user:" + strings.Repeat("x", 122)}, "gateway/user:" + strings.Repeat("x", 122) + " via gateway: view, control, session"},
		"the program":                {listed, auth.Credentials{Token: otherToken, OnBehalfOf: "in-process"}, ""},
		"one without patterns":       {listed, auth.Credentials{Token: ciToken, OnBehalfOf: "user:ann"}, ""},
		"root":                       {listed, auth.Credentials{Peer: &auth.Peer{}, OnBehalfOf: "ci"}, ""},
		"from inside, listed":        {listed, auth.Credentials{InProcess: true, OnBehalfOf: "ci"}, "ci via in-process: view, start"},
		"from inside, unlisted":      {listed, auth.Credentials{InProcess: true, OnBehalfOf: "x"}, "in-process/x via in-process: " + all},
		"no table, from inside":      {open, auth.Credentials{InProcess: true, OnBehalfOf: "x"}, "in-process/x via in-process: " + all},
		"no table, a user":           {open, auth.Credentials{Peer: &auth.Peer{}, OnBehalfOf: "x"}, ""},
		"no table, loopback":         {open, auth.Credentials{Loopback: true, OnBehalfOf: "x"}, ""},
		"no table, inside with junk": {open, auth.Credentials{InProcess: true, OnBehalfOf: "a/b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := tc.a.Authenticate(tc.show)
			expectCaller(t, caller, err, tc.want, auth.KindOnBehalfOfRefused)
		})
	}
}

func TestAuthenticate_WithoutTable(t *testing.T) {
	a, err := auth.NewAuthenticator("", auth.WebsocketOptions{}, nil)
	if err != nil || a.HasTable() {
		t.Fatalf("%v, has a table: %v", err, a.HasTable())
	}
	all := auth.Everything.String()
	for name, tc := range map[string]struct {
		show auth.Credentials
		want string
		kind auth.Kind
	}{
		"user":             {auth.Credentials{Peer: &auth.Peer{UID: 7}}, "uid:7: " + all, 0},
		"loopback":         {auth.Credentials{Loopback: true}, "loopback: " + all, 0},
		"program":          {auth.Credentials{InProcess: true}, "in-process: " + all, 0},
		"token, loopback":  {auth.Credentials{Token: ciToken, Loopback: true}, "", auth.KindTokenInvalid},
		"token, user":      {auth.Credentials{Token: ciToken, Peer: &auth.Peer{UID: 7}}, "", auth.KindTokenInvalid},
		"somewhere else":   {auth.Credentials{}, "", auth.KindCredentialMissing},
		"certificate only": {auth.Credentials{Certificates: certificate("ci", unchanged)}, "", auth.KindCredentialMissing},
	} {
		caller, err := a.Authenticate(tc.show)
		t.Run(name, func(t *testing.T) { expectCaller(t, caller, err, tc.want, tc.kind) })
	}
}

func TestNewAuthenticator_InvalidTable_Fails(t *testing.T) {
	var typed *auth.TableError
	if _, err := auth.NewAuthenticator(t.TempDir()+"/none", auth.WebsocketOptions{}, nil); !errors.As(err, &typed) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("NewAuthenticator = %v", err)
	}
}

// A hash does not reveal the length of its token; the presented token does.
func TestTable_ShortTokenOfHash_IsRejected(t *testing.T) {
	for n, in := range map[int]bool{auth.MinSecretBytes: true, auth.MinSecretBytes - 1: false, 4: false} {
		token := strings.Repeat("t", n)
		file := filepath.Join(t.TempDir(), "principals.toml")
		text := fmt.Sprintf("[[principal]]\nname='a'\nallow=['all']\ntoken_sha256='%x'", auth.HashToken([]byte(token)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		table, _, err := auth.ReadTable(file)
		if err != nil {
			t.Fatal(err)
		}
		caller, err := table.Authenticate(auth.Credentials{Token: token})
		var typed *auth.Error
		switch {
		case in && (err != nil || caller.Principal.Name != "a"):
			t.Errorf("%d bytes: %v, %v", n, caller, err)
		case !in && (!errors.As(err, &typed) || typed.Kind != auth.KindTokenInvalid || !caller.Principal.IsZero() || strings.Contains(err.Error(), token)):
			t.Errorf("%d bytes: %v, %v, want %v", n, caller, err, auth.KindTokenInvalid)
		}
	}
}
