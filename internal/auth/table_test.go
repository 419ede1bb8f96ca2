package auth_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/auth"
)

const (
	ciToken    = "ci-token-0123456789-0123456789-0123456789"
	otherToken = "other-token-0123456789-0123456789-012345"
	sumToken   = "012345678901234567890123456789ab"
)

// directory writes a table of principals, in which DIR stands for the directory
// of the files that it refers to.
func directory(t *testing.T, text string) (table string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKIXPublicKey(verifyingKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	sum, pin := sha256.Sum256([]byte(sumToken)), sha256.Sum256([]byte("raw"))
	expand := strings.NewReplacer("DIR", dir, "SUM", hex.EncodeToString(sum[:]), "PIN", strings.ToUpper(hex.EncodeToString(pin[:])))
	for name, content := range map[string]string{
		"ci.token": ciToken + "\n", "other.token": otherToken, "same.token": ciToken, "short.token": "short", "two.token": ciToken + " " + ciToken,
		"hs256": string(secret), "eddsa.pem": string(public), "junk.pem": "junk",
		"table.toml": expand.Replace(text),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open.token"), []byte(ciToken), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "table.toml")
}

func TestReadTable_Invalid_Fails(t *testing.T) {
	for name, tc := range map[string]struct {
		text     string
		entry    string
		wantText []string
	}{
		"not TOML":         {"[[principal", "", []string{"not a valid table"}},
		"empty":            {"", "", []string{"no principals"}},
		"wrong type":       {"[[principal]]\nname = 3", "", []string{"not a valid table"}},
		"run as no user":   {"[[principal]]\nname='a'\nallow=['all']\nrun_as=['0', 'no such']", "a", []string{`run_as has "no such"`, "/etc/passwd"}},
		"unknown key":      {"[[principal]]\nname='a'\nallow=['all']\ntoken='secret'", "", []string{"principal.token", "docs/security.md"}},
		"allow twice":      {"[[principal]]\nname='a'\nallow=['view']\nAllow=['all']", "", []string{"table.toml", "principal.Allow", "write principal.allow"}},
		"Allow alone":      {"[[principal]]\nname='a'\nAllow=['all']", "", []string{"principal.Allow", "write principal.allow"}},
		"PRINCIPAL":        {"[[PRINCIPAL]]\nname='a'\nallow=['all']", "", []string{"PRINCIPAL", "write principal"}},
		"later principal":  {"[[principal]]\nname='a'\nallow=['all']\n[[principal]]\nName='b'\nallow=['all']", "", []string{"principal.Name", "write principal.name"}},
		"long s":           {"[[principal]]\nname='a'\nallow=['all']\n\"jwt_\u017fubjects\"=['x']\n[jwt]\nissuer='x'", "", []string{"unknown key", "write principal"}},
		"Kelvin sign":      {"[[principal]]\nname='a'\nallow=['all']\n\"to\u212aen_sha256\"='x'", "", []string{"unknown key", "write principal"}},
		"inline, twice":    {"principal=[{name='a', allow=['view'], Allow=['all']}]", "", []string{"principal.Allow", "write principal.allow"}},
		"inline, unknown":  {"principal=[{name='a', allow=['view']}, {name='b', allow=['view'], token='x'}]", "", []string{"principal.token"}},
		"escaped capital":  {"[[principal]]\nname='a'\nallow=['view']\n\"\\u0041llow\"=['all']", "", []string{"principal.Allow", "write principal.allow"}},
		"key with a dot":   {"\"principal.allow\"=['all']\n[[principal]]\nname='a'\nallow=['view']", "", []string{"unknown key \"principal.allow\""}},
		"empty table":      {"[[principal]]\nname='a'\nallow=['all']\n[principal.jwt]", "", []string{"principal.jwt"}},
		"JWT beside jwt":   {"[[principal]]\nname='a'\nallow=['all']\n[jwt]\n[JWT]\nissuer='x'", "", []string{"unknown key JWT", "write jwt"}},
		"Issuer":           {"[[principal]]\nname='a'\nallow=['all']\n[jwt]\nIssuer='x'", "", []string{"jwt.Issuer", "write jwt.issuer"}},
		"key in a key":     {"[[principal]]\nname='a'\nallow=['all']\nloopback={x=true}", "", []string{"loopback"}},
		"unknown table":    {"[[principals]]\nname='a'", "", []string{"principals"}},
		"no name":          {"[[principal]]\nallow=['all']", "principal 1", []string{"is empty"}},
		"slash":            {"[[principal]]\nname='a/b'\nallow=['all']", "principal 1", []string{"slash"}},
		"long name":        {"[[principal]]\nname='" + strings.Repeat("x", 129) + "'\nallow=['all']", "principal 1", []string{"128"}},
		"control":          {"[[principal]]\nname=\"a\\nb\"\nallow=['all']", "principal 1", []string{"printed"}},
		"reserved":         {"[[principal]]\nname='in-process'\nallow=['all']", "principal 1", []string{"is reserved"}},
		"twice":            {"[[principal]]\nname='a'\nallow=['all']\n[[principal]]\nname='a'\nallow=['all']", "a", []string{"used twice"}},
		"no allow":         {"[[principal]]\nname='a'", "a", []string{"allow is missing"}},
		"unknown allow":    {"[[principal]]\nname='a'\nallow=['root']", "a", []string{`"root"`, "view, start, control, session, environment"}},
		"bad pattern":      {"[[principal]]\nname='a'\nallow=['all']\non_behalf_of=['[']", "a", []string{`"["`, "user:*"}},
		"slash pattern":    {"[[principal]]\nname='a'\nallow=['all']\non_behalf_of=['b/*']", "a", []string{`"b/*"`}},
		"executors":        {"[[principal]]\nname='a'\nact_as_executors=['']", "a", []string{"act_as_executors", "build-*"}},
		"connections":      {"[[principal]]\nname='a'\nconnect_to_executors=['a/b']", "a", []string{"connect_to_executors", `"a/b"`}},
		"gateway unlocked": {"[[principal]]\nname='a'\nallow=['all']\non_behalf_of=['*']", "a", []string{"no credential"}},
		"missing token":    {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='DIR/none'", "a", []string{"token_file", "DIR/none", "no such file"}},
		"relative token":   {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='none'", "a", []string{"absolute"}},
		"short token":      {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='DIR/short.token'", "a", []string{"32", "openssl rand"}},
		"unsendable token": {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='DIR/two.token'", "a", []string{"cannot be sent"}},
		"open token":       {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='DIR/open.token'", "a", []string{"chmod 600"}},
		"bad sum":          {"[[principal]]\nname='a'\nallow=['all']\ntoken_sha256='abc'", "a", []string{"sha256sum"}},
		"both":             {"[[principal]]\nname='a'\nallow=['all']\ntoken_sha256='abc'\ntoken_file='DIR/ci.token'", "a", []string{"both"}},
		"token twice": {"[[principal]]\nname='a'\nallow=['all']\ntoken_file='DIR/ci.token'\n[[principal]]\nname='b'\nallow=['all']\ntoken_file='DIR/same.token'",
			"b", []string{"that of a"}},
		"bad certificate":   {"[[principal]]\nname='a'\nallow=['all']\ncertificates=['x']", "a", []string{`"x"`, "uri:"}},
		"bad kind":          {"[[principal]]\nname='a'\nallow=['all']\ncertificates=['ip:1']", "a", []string{`"ip:1"`}},
		"bad fingerprint":   {"[[principal]]\nname='a'\nallow=['all']\ncertificates=['sha256:12']", "a", []string{"SHA-256"}},
		"certificate twice": {"[[principal]]\nname='a'\nallow=['all']\ncertificates=['dns:X']\n[[principal]]\nname='b'\nallow=['all']\ncertificates=['dns:x']", "b", []string{"dns:x", "a"}},
		"unknown user":      {"[[principal]]\nname='a'\nallow=['all']\nunix_users=['no-such-user']", "a", []string{"no such user"}},
		"user twice":        {"[[principal]]\nname='a'\nallow=['all']\nunix_users=['root', '0']", "a", []string{"unix_users"}},
		"loopback twice":    {"[[principal]]\nname='a'\nallow=['all']\nloopback=true\n[[principal]]\nname='b'\nallow=['all']\nloopback=true", "b", []string{"loopback", "a"}},
		"identity, no kind": {"[[principal]]\nname='a'\nallow=['all']\noidc_identities=['ann@example.org']", "a", []string{"email:ann@example.org"}},
		"identity, empty":   {"[[principal]]\nname='a'\nallow=['all']\noidc_identities=['sub:']", "a", []string{"oidc_identities has"}},
		"identity, twice":   {"[[principal]]\nname='a'\nallow=['all']\noidc_identities=['sub:1']\n[[principal]]\nname='b'\nallow=['all']\noidc_identities=['sub:1']", "b", []string{"and so has a"}},
		"subject, no key":   {"[[principal]]\nname='a'\nallow=['all']\njwt_subjects=['x']", "a", []string{"[jwt]"}},
		"jwt without key":   {"[jwt]\nissuer='x'\n[[principal]]\nname='a'\nallow=['all']", "jwt", []string{"no key"}},
		"jwt bad key":       {"[jwt]\neddsa_public_key_file='DIR/junk.pem'", "jwt", []string{"Ed25519", "openssl pkey"}},
		"jwt short secret":  {"[jwt]\nhs256_secret_file='DIR/short.token'", "jwt", []string{"32"}},
		"jwt bad skew":      {"[jwt]\nhs256_secret_file='DIR/hs256'\nmax_clock_skew='1'", "jwt", []string{"30s"}},
		"jwt huge skew":     {"[jwt]\nhs256_secret_file='DIR/hs256'\nmax_clock_skew='2h'", "jwt", []string{"1h"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := directory(t, tc.text)
			table, files, err := auth.ReadTable(file)
			var typed *auth.TableError
			if !errors.As(err, &typed) || typed.File != file || typed.Entry != tc.entry || table != nil {
				t.Fatalf("ReadTable = %v, %v, want a TableError about %q", table, err, tc.entry)
			}
			if len(files) == 0 || files[0] != file {
				t.Errorf("it read %v, want the table first", files)
			}
			for _, text := range append(tc.wantText, file) {
				if text = strings.ReplaceAll(text, "DIR", filepath.Dir(file)); !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not contain %q", err, text)
				}
			}
			for _, hidden := range []string{ciToken, string(secret)} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("%q repeats a secret", err)
				}
			}
		})
	}
}

func TestReadTable_WritableByOthers_Fails(t *testing.T) {
	file := directory(t, table)
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := auth.ReadTable(file); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("ReadTable = %v", err)
	}
}

func TestReadTable_ReturnsFiles(t *testing.T) {
	file := directory(t, table)
	_, files, err := auth.ReadTable(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	want := []string{file, dir + "/hs256", dir + "/eddsa.pem", dir + "/ci.token", dir + "/other.token"}
	if strings.Join(files, " ") != strings.Join(want, " ") {
		t.Errorf("it is made of %v, want %v", files, want)
	}
}
