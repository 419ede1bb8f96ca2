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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/execwire/execwire/internal/wsconn"
)

// Limits of what an executor says about itself.
const (
	MaxIDBytes         = 256
	MaxNameBytes       = 256
	MaxVersionBytes    = 64
	MaxInstanceBytes   = 64
	MaxLabels          = 32
	MaxLabelNameBytes  = 64
	MaxLabelValueBytes = 256
	// MaxLabelsBytes is for all labels as they are sent: NAME=VALUE, separated by
	// commas, with %XX for all but ASCII letters, digits, -, _, . and ~.
	MaxLabelsBytes = 4096
)

var (
	goodID        = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	goodLabelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?$`)
)

// checked returns o with its defaults, or an *OptionsError.
func (o Options) checked() (Options, error) {
	o.BaseURL = strings.TrimRight(strings.TrimSpace(o.BaseURL), "/")
	o.ExecutorID = strings.TrimSpace(o.ExecutorID)
	if err := o.problem(); err != nil {
		return o, err
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Timeout", &o.Timeout, DefaultTimeout}, {"RetryFirst", &o.RetryFirst, DefaultRetryFirst}, {"RetryMost", &o.RetryMost, DefaultRetryMost},
		{"PingInterval", &o.PingInterval, DefaultPingInterval}, {"PongTimeout", &o.PongTimeout, DefaultPongTimeout},
		{"Websocket.DeadAfter", &o.Websocket.DeadAfter, DefaultDeadAfter},
	} {
		if *d.value < 0 {
			return o, &OptionsError{Name: d.name, Problem: fmt.Sprintf("is %v", *d.value), Fix: "it must not be negative"}
		}
		*d.value = cmp.Or(*d.value, d.standard)
	}
	if o.Instance == "" {
		o.Instance = uuid.NewString()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Websocket.Binary, o.Websocket.PingInterval = true, 0
	o.Websocket.Label = cmp.Or(o.Websocket.Label, "rendezvous")
	return o, nil
}

// problem says what of the options is wrong; the names are those of the flags.
func (o Options) problem() error {
	if o.BaseURL == "" {
		return &OptionsError{Name: "--remote", Problem: "executor registry base URL is required", whole: true}
	}
	base, problem := urlProblem(o.BaseURL, "https", "http", false, o.AllowPlainText)
	if problem != "" {
		return &OptionsError{Name: "--remote", Problem: problem, Fix: "write it as https://HOST[:PORT][/PATH], or http:// on loopback"}
	}
	if o.ExecutorID == "" {
		return &OptionsError{Name: "--executor-id", Problem: "executor id is required for remote exec-server registration", whole: true}
	}
	if len(o.ExecutorID) > MaxIDBytes || !goodID.MatchString(o.ExecutorID) {
		return &OptionsError{Name: "--executor-id", Problem: fmt.Sprintf("cannot be %q", shorten(o.ExecutorID, 64)),
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
	if len(o.Instance) > MaxInstanceBytes || o.Instance != "" && !goodID.MatchString(o.Instance) {
		return &OptionsError{Name: "Instance", Problem: "is no id", Fix: fmt.Sprintf("use at most %d ASCII letters, digits, - and _", MaxInstanceBytes)}
	}
	if o.Credentials == nil && !wsconn.IsLoopback(base.Hostname()) {
		return noCredentials()
	}
	if o.Serve == nil {
		return &OptionsError{Name: "Serve", Problem: "is needed"}
	}
	return nil
}

// textProblem says what is wrong with text that people read; empty if nothing.
func textProblem(text string, most int) string {
	switch {
	case len(text) > most:
		return fmt.Sprintf("has %d bytes, and may have %d", len(text), most)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has characters that cannot be printed"
	}
	return ""
}

func labelsProblem(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return &OptionsError{Name: "--label", Problem: fmt.Sprintf("is given %d times", len(labels)), Fix: fmt.Sprintf("give at most %d", MaxLabels)}
	}
	for name, value := range labels {
		if len(name) > MaxLabelNameBytes || !goodLabelName.MatchString(name) {
			return &OptionsError{Name: "--label", Problem: fmt.Sprintf("cannot have the name %q", shorten(name, 64)),
				Fix: fmt.Sprintf("use at most %d ASCII letters, digits, -, _, . and /, with a letter or digit at both ends", MaxLabelNameBytes)}
		}
		if problem := textProblem(value, MaxLabelValueBytes); problem != "" {
			return &OptionsError{Name: "--label " + name, Problem: problem}
		}
	}
	if n := len(encodeLabels(labels)); n > MaxLabelsBytes {
		return &OptionsError{Name: "--label", Problem: fmt.Sprintf("takes %d bytes in all", n), Fix: fmt.Sprintf("all labels may take %d as they are sent", MaxLabelsBytes)}
	}
	return nil
}

// encodeLabels returns labels as they are sent, in the order of their names.
func encodeLabels(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, percentEncode(name)+"="+percentEncode(labels[name]))
	}
	return strings.Join(pairs, ",")
}

// percentEncode leaves ASCII letters, digits, -, _, . and ~ as they are.
func percentEncode(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// shorten returns the beginning of text, of at most so many characters.
func shorten(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + "…"
		}
	}
	return text
}
