package executor

import (
	"net/url"
	"strings"

	"github.com/execwire/execwire/internal/wsconn"
)

// urlProblem parses the URL in text and describes what is wrong with it. It must
// have the scheme secure or plain, a host, and nothing else but a path, and a
// query if allowed. plain is rejected beyond loopback. The description never
// repeats the URL, which may contain secrets.
func urlProblem(text, secure, plain string, query bool) (*url.URL, string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, "is not a valid URL"
	case u.Scheme != secure && u.Scheme != plain || u.Opaque != "":
		return nil, "is not a URL of " + secure + ":// or " + plain + "://"
	case u.Hostname() == "":
		return nil, "has no host"
	case u.User != nil || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, "has a user or a fragment"
	case !query && (u.RawQuery != "" || u.ForceQuery):
		return nil, "has a query"
	case u.Scheme == plain && !wsconn.IsLoopback(u.Hostname()):
		return nil, "is " + plain + ":// to another host, which exposes credentials and data to the network"
	}
	return u, ""
}

// redacted returns u without its query, which may contain a signature.
func redacted(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		return shown.String() + "?…"
	}
	return shown.String()
}

// minSecretBytes is the minimum length of a query value that counts as a secret;
// shorter ones are ordinary words.
const minSecretBytes = 12

// secretsOf returns the secrets in u: its query, and the values in it, which may
// be repeated alone.
func secretsOf(u *url.URL) []string {
	secrets := []string{u.RawQuery}
	for _, values := range u.Query() {
		for _, value := range values {
			if len(value) >= minSecretBytes {
				secrets = append(secrets, value, url.QueryEscape(value))
			}
		}
	}
	return secrets
}
