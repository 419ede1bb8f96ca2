package executor

import (
	"encoding/json"
	"net/url"
	"time"
)

// SetClock gives an agent identity another clock.
func SetClock(c Credentials, now func() time.Time) { c.(*identity).now = now }

// ParseAnswer reads the body of a registry's answer of success.
func ParseAnswer(body []byte) (to *url.URL, err error) {
	var members object
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	answer, err := (&registry{}).parse(members)
	return answer.url, err
}

// ParseKey reads a public key, and says for which algorithm it is.
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

// FailedToConnect is what is said when to cannot be connected to.
func FailedToConnect(to *url.URL, err error) error { return connectError(to, err) }
