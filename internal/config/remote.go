package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of what an executor says of itself.
const (
	maxExecutorName  = 256 // bytes
	maxLabels        = 64
	maxLabelBytes    = 256 // key, = and value
	listenOff        = "off"
	labelKeyAlphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"
)

// HasRemote reports whether the daemon is an executor of a relay.
func (c *Config) HasRemote() bool { return c.RemoteURL != "" }

// HasAgentIdentity reports whether it registers by an agent identity.
func (c *Config) HasAgentIdentity() bool { return c.AgentIdentity == switchedOn }

// notListed is a listen that nobody has set.
var notListed = []string{""}

// listenUnlessSet makes listen what it is where nobody has set it: nothing, if
// the daemon is reached through a relay.
func (c *Config) listenUnlessSet() {
	if !slices.Equal(c.Listen, notListed) {
		return
	}
	if c.Listen = Default().Listen; c.HasRemote() {
		c.Listen = []string{listenOff}
	}
}

// validateRemote checks that an executor can be told from others, and that what
// is set beside it has an effect.
func (c *Config) validateRemote() error {
	if !c.HasRemote() {
		for _, s := range []struct {
			name  string
			isSet bool
		}{
			{"executor_name", c.ExecutorName != ""}, {"executor_labels", len(c.ExecutorLabels) > 0},
			{"remote_token_file", c.RemoteTokenFile != ""}, {"agent_identity", c.HasAgentIdentity()},
		} {
			if s.isSet {
				return &Error{Setting: s.name, Problem: "needs remote_url", Fix: "it is for servers that are reached through a relay"}
			}
		}
		return nil
	}
	u, err := url.Parse(c.RemoteURL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return &Error{Setting: "remote_url", Problem: "is no address of a registry", Fix: "write https://HOST or http://HOST:PORT, with a path if it has one and nothing behind it"}
	case c.ExecutorID == "":
		return &Error{Setting: "executor_id", Problem: "is needed when remote_url is set", Fix: "choose the name by which clients will find this server"}
	case c.HasAgentIdentity() && c.RemoteTokenFile != "":
		return &Error{Setting: "remote_token_file", Problem: "and agent_identity exclude each other"}
	case c.RemoteTokenFile != "" && !filepath.IsAbs(c.RemoteTokenFile):
		return &Error{Setting: "remote_token_file", Problem: fmt.Sprintf("cannot be %q", c.RemoteTokenFile), Fix: "write an absolute path"}
	case len(c.ExecutorName) > maxExecutorName || !printable(c.ExecutorName):
		return &Error{Setting: "executor_name", Problem: "cannot be shown", Fix: fmt.Sprintf("write at most %d bytes of text on one line", maxExecutorName)}
	}
	return c.validateLabels()
}

func (c *Config) validateLabels() error {
	if len(c.ExecutorLabels) > maxLabels {
		return &Error{Setting: "executor_labels", Problem: fmt.Sprintf("has %d labels", len(c.ExecutorLabels)), Fix: fmt.Sprintf("give at most %d", maxLabels)}
	}
	seen := map[string]bool{}
	for _, label := range c.ExecutorLabels {
		key, value, found := strings.Cut(label, "=")
		if !found || key == "" || strings.Trim(key, labelKeyAlphabet) != "" || len(label) > maxLabelBytes || !printable(value) {
			return &Error{Setting: "executor_labels", Problem: fmt.Sprintf("cannot have %.100q", label),
				Fix: fmt.Sprintf("write KEY=VALUE, at most %d bytes, the key of letters, digits and . _ - /", maxLabelBytes)}
		}
		if seen[key] {
			return &Error{Setting: "executor_labels", Problem: "has " + key + " twice"}
		}
		seen[key] = true
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
