package auth

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

func securityDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The example of docs/security.md is valid.
func TestDocument_Example_IsValid(t *testing.T) {
	_, rest, _ := strings.Cut(securityDocument(t), "```toml\n")
	example, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("the document has no example")
	}
	// The example must accept no caller: the token of its hash is unknown.
	token := strings.Repeat("t", MinSecretBytes)
	hash := HashToken([]byte(token))
	example = regexp.MustCompile(`token_sha256 = "[0-9a-f]{64}"`).ReplaceAllString(example, fmt.Sprintf("token_sha256 = \"%x\"", hash))
	dir := t.TempDir()
	der, err := x509.MarshalPKIXPublicKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"ci.token": []byte(strings.Repeat("c", 32)), "jwt.secret": []byte(strings.Repeat("j", 32)),
		"jwt.pub":         pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"principals.toml": []byte(strings.ReplaceAll(example, "/etc/execwire", dir)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, _, err := ReadTable(filepath.Join(dir, "principals.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, may := range map[string]Permissions{
		"ci": View | Start | Control, "dashboard": View | Environment, "gateway": All, "admin": All,
	} {
		if i, ok := table.byName[name]; !ok || table.entries[i].may != may {
			t.Errorf("%s is missing, or does not have the permission %v", name, may)
		}
	}
	if c, err := table.Authenticate(Credentials{Token: token, OnBehalfOf: "user:ann"}); err != nil || c.Principal.Name != "gateway/user:ann" {
		t.Errorf("the gateway is %+v, %v", c, err)
	}
}

// docs/security.md describes exactly the existing keys.
func TestDocument_DescribesEveryKey(t *testing.T) {
	text := securityDocument(t)
	for heading, example := range map[string]any{"| key of a principal |": principalTable{}, "| key of `[jwt]` |": jwtTable{}} {
		_, rest, _ := strings.Cut(text, heading)
		body, _, _ := strings.Cut(rest, "\n\n")
		var described, want []string
		for line := range strings.Lines(body) {
			if key, found := strings.CutPrefix(line, "| `"); found {
				described = append(described, key[:strings.IndexByte(key, '`')])
			}
		}
		for i := range reflect.TypeOf(example).NumField() {
			want = append(want, reflect.TypeOf(example).Field(i).Tag.Get("toml"))
		}
		if strings.Join(described, " ") != strings.Join(want, " ") {
			t.Errorf("%s: described are %v, want %v", heading, described, want)
		}
	}
}
