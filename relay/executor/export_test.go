package executor

import (
	"encoding/json"
	"net/url"
	"time"
)

// SetClock replaces the clock of an agent identity.
func SetClock(c Credentials, now func() time.Time) { c.(*identity).now = now }

// ParseAnswer parses the body of a registry's successful response.
func ParseAnswer(body []byte) (to *url.URL, err error) {
	var members object
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	answer, err := (&registry{}).parse(members)
	return answer.url, err
}

// ParseKey parses a public key and returns its algorithm.
func ParseKey(text []byte) (algorithm string, err error) {
	var members object
	if err := json.Unmarshal(text, &members); err != nil {
		return "", err
	}
	method, _, err := parseKey(members)
	if err != nil {
		return "", err
	}
	return method.Alg(), nil
}

// FailedToConnect returns the error for a failed connection to a URL.
func FailedToConnect(to *url.URL, err error) error { return connectError(to, err) }
