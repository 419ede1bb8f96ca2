package executor

import (
	"net/url"
	"strings"

	"github.com/execwire/execwire/internal/wsconn"
)

// urlProblem says what is wrong with the URL in text if it is not one of the
// secure or the plain scheme with nothing but host and path, and a query if
// that is allowed. plain is refused beyond loopback unless anywhere. What is
// wrong never repeats the URL, which may hold secrets.
func urlProblem(text, secure, plain string, query, anywhere bool) (*url.URL, string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, "cannot be read as a URL"
	case u.Scheme != secure && u.Scheme != plain || u.Opaque != "":
		return nil, "is not a URL of " + secure + ":// or " + plain + "://"
	case u.Hostname() == "":
		return nil, "names no host"
	case u.User != nil || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, "has a user or a fragment"
	case !query && (u.RawQuery != "" || u.ForceQuery):
		return nil, "has a query"
	case u.Scheme == plain && !anywhere && !wsconn.IsLoopback(u.Hostname()):
		return nil, "is " + plain + ":// to another host, where everybody on the way can read credentials and change what is said"
	}
	return u, ""
}

// masked is u for people: without its query, which may hold a signature.
func masked(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		return shown.String() + "?…"
	}
	return shown.String()
}

// minSecretBytes is how long a value in a query is that may be a credential;
// shorter ones are words.
const minSecretBytes = 12

// secretsOf returns what of u must not be shown: its query, and the values in it
// as they may be repeated alone.
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
