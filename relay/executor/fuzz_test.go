package executor_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/execwire/execwire/relay/executor"
)

// FuzzAnswer parses any response of a registry. An executor connects only to
// websockets, encrypted or on this host, and errors about an unreachable one are
// printable and contain nothing of the query.
func FuzzAnswer(f *testing.F) {
	for _, to := range []string{
		"wss://h/executor/x?role=executor&epoch=1&sig=0123456789abcdef", "ws://127.0.0.1:7430/?s3cr3t", "ws://[::1]/", "ws://192.0.2.1/", "ws://localhost:1/%2f",
		"wss://u:p@h/", "wss://h#f", "wss:h", "WSS://H", "ws://0/", "ws://127.1/", "ws://[::ffff:127.0.0.1%25eth0]/", "wss://h/?a=%zz&b=;",
	} {
		f.Add(`{"executor_id":"x","url":"` + to + `","epoch":1}`)
	}
	f.Add(`null`)
	f.Add(`{"executor_id":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		to, err := executor.ParseAnswer([]byte(text))
		if err != nil {
			return
		}
		address, _ := netip.ParseAddr(to.Hostname())
		local := strings.EqualFold(to.Hostname(), "localhost") || address.Unmap().IsLoopback()
		if to.Hostname() == "" || to.User != nil || to.Fragment != "" || to.Scheme != "wss" && (to.Scheme != "ws" || !local) {
			t.Fatalf("%q is connected to", to)
		}
		said := executor.FailedToConnect(to, &url.Error{Op: "Get", URL: to.String(), Err: errors.New("refused: " + to.String())}).Error()
		if len(to.RawQuery) >= 12 && strings.Contains(said, to.RawQuery) {
			t.Fatalf("%q says the query of %q", said, to)
		}
		if strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q cannot be shown", said)
		}
	})
}

// FuzzKey parses any key of an authority: it is rejected, or valid for one of the
// two algorithms.
func FuzzKey(f *testing.F) {
	for _, key := range authorityKeys()["keys"].([]members) {
		f.Add(string(asJSON(key)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		algorithm, err := executor.ParseKey([]byte(text))
		if (err == nil) != (algorithm == "RS256" || algorithm == "EdDSA") {
			t.Fatalf("algorithm %q, %v", algorithm, err)
		}
	})
}
