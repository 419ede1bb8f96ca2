package executor

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/wsconn"
)

// Limits of an executor's description of itself.
const (
	MaxIDBytes         = 256
	MaxNameBytes       = 256
	MaxVersionBytes    = 64
	MaxLabels          = 32
	MaxLabelNameBytes  = 64
	MaxLabelValueBytes = 256
	// MaxLabelsBytes bounds all labels as they are sent: NAME=VALUE, separated by
	// commas, with everything but ASCII letters, digits, -, _, . and ~
	// percent-encoded.
	MaxLabelsBytes = 4096
)

var (
	validID        = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	validLabelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$`)
)

// withDefaults returns o with defaults, or an *OptionsError.
func (o Options) withDefaults() (Options, error) {
	o.BaseURL = strings.TrimRight(strings.TrimSpace(o.BaseURL), "/")
	o.ExecutorID = strings.TrimSpace(o.ExecutorID)
	if err := o.validate(); err != nil {
		return o, err
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, DefaultRetryMin), cmp.Or(o.RetryMax, DefaultRetryMax)
	o.PingInterval, o.PongTimeout = cmp.Or(o.PingInterval, DefaultPingInterval), cmp.Or(o.PongTimeout, DefaultPongTimeout)
	o.Websocket.DeadAfter = cmp.Or(o.Websocket.DeadAfter, DefaultDeadAfter)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Websocket.Binary, o.Websocket.PingInterval = true, 0
	o.Websocket.Label = cmp.Or(o.Websocket.Label, "rendezvous")
	return o, nil
}

// validate checks the options. Errors use the names of flags.
func (o Options) validate() error {
	if o.BaseURL == "" {
		return &OptionsError{Name: "--remote", Problem: "executor registry base URL is required", sentence: true}
	}
	base, problem := urlProblem(o.BaseURL, "https", "http", false)
	if problem != "" {
		return &OptionsError{Name: "--remote", Problem: problem, Fix: "write it as https://HOST[:PORT][/PATH], or http:// on loopback"}
	}
	if o.ExecutorID == "" {
		return &OptionsError{Name: "--executor-id", Problem: "executor id is required for remote exec-server registration", sentence: true}
	}
	if len(o.ExecutorID) > MaxIDBytes || !validID.MatchString(o.ExecutorID) {
		return &OptionsError{Name: "--executor-id", Problem: fmt.Sprintf("cannot be %q", truncate(o.ExecutorID, 64)),
			Fix: fmt.Sprintf("use at most %d ASCII letters, digits, - and _", MaxIDBytes)}
	}
	if problem := textProblem(o.Name, MaxNameBytes); problem != "" {
		return &OptionsError{Name: "--name", Problem: problem}
	}
	if problem := textProblem(o.Version, MaxVersionBytes); problem != "" {
		return &OptionsError{Name: "Version", Problem: problem}
	}
	if err := labelsProblem(o.Labels); err != nil {
		return err
	}
	if o.Credentials == nil && !wsconn.IsLoopback(base.Hostname()) {
		return noCredentials()
	}
	if o.Serve == nil {
		return &OptionsError{Name: "Serve", Problem: "is required"}
	}
	return nil
}

// textProblem describes what is wrong with a human-readable text; empty if
// nothing.
func textProblem(text string, limit int) string {
	switch {
	case len(text) > limit:
		return fmt.Sprintf("has %d bytes; the limit is %d", len(text), limit)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has characters that cannot be printed"
	}
	return ""
}

func labelsProblem(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return &OptionsError{Name: "--executor-labels", Problem: fmt.Sprintf("is given %d times", len(labels)), Fix: fmt.Sprintf("give at most %d", MaxLabels)}
	}
	for name, value := range labels {
		if len(name) > MaxLabelNameBytes || !validLabelName.MatchString(name) {
			return &OptionsError{Name: "--executor-labels", Problem: fmt.Sprintf("cannot have the name %q", truncate(name, 64)),
				Fix: fmt.Sprintf("use at most %d ASCII letters, digits, -, _, . and /, with a letter or digit at both ends", MaxLabelNameBytes)}
		}
		if problem := textProblem(value, MaxLabelValueBytes); problem != "" {
			return &OptionsError{Name: "--executor-labels " + name, Problem: problem}
		}
	}
	if n := len(encodeLabels(labels)); n > MaxLabelsBytes {
		return &OptionsError{Name: "--executor-labels", Problem: fmt.Sprintf("takes %d bytes in all", n), Fix: fmt.Sprintf("the encoded labels may take %d", MaxLabelsBytes)}
	}
	return nil
}

// encodeLabels encodes labels, sorted by name.
func encodeLabels(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, percentEncode(name)+"="+percentEncode(labels[name]))
	}
	return strings.Join(pairs, ",")
}

// percentEncode encodes all but ASCII letters, digits, -, _, . and ~.
func percentEncode(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// truncate returns at most limit characters of text.
func truncate(text string, limit int) string {
	n := 0
	for i := range text {
		if n++; n > limit {
			return text[:i] + "…"
		}
	}
	return text
}
