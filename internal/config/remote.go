package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// listenOff is the value of listen without listeners.
const listenOff = "off"

// HasRemote reports whether the daemon is an executor of a relay.
func (c *Config) HasRemote() bool { return c.RemoteURL != "" }

// HasAgentIdentity reports whether it registers by an agent identity.
func (c *Config) HasAgentIdentity() bool { return c.AgentIdentity == switchedOn }

// notListed is the value of listen before it was set.
var notListed = []string{""}

// listenUnlessSet gives listen its default if it was not set: none, if the daemon is
// reached through a relay.
func (c *Config) listenUnlessSet() {
	if !slices.Equal(c.Listen, notListed) {
		return
	}
	if c.Listen = Default().Listen; c.HasRemote() {
		c.Listen = []string{listenOff}
	}
}

// validateRemote checks that the executor has an id, and that the settings beside it
// have an effect.
func (c *Config) validateRemote() error {
	if !c.HasRemote() {
		for _, s := range []struct {
			name  string
			isSet bool
		}{
			{"executor_name", c.ExecutorName != ""}, {"executor_labels", len(c.ExecutorLabels) > 0},
			{"remote_token_file", c.RemoteTokenFile != ""}, {"remote_tls_ca", c.RemoteCA != ""}, {"agent_identity", c.HasAgentIdentity()},
		} {
			if s.isSet {
				return &Error{Setting: s.name, Problem: "needs remote", Fix: "it is for servers that are reached through a relay"}
			}
		}
		return nil
	}
	u, err := url.Parse(strings.TrimSpace(c.RemoteURL))
	switch {
	case err != nil || !isHTTP(u):
		return &Error{Setting: "remote", Problem: "is no address of a registry", Fix: "write https://HOST or http://HOST:PORT, with a path if it has one and nothing behind it"}
	case c.ExecutorID == "":
		return &Error{Setting: "executor_id", Problem: "is needed when remote is set", Fix: "choose the name by which clients will find this server"}
	case c.HasAgentIdentity() && c.RemoteTokenFile != "":
		return &Error{Setting: "remote_token_file", Problem: "and agent_identity exclude each other"}
	}
	return c.validateLabels()
}

// Labels returns the labels of the executor by their keys.
func (c *Config) Labels() map[string]string {
	labels := make(map[string]string, len(c.ExecutorLabels))
	for _, label := range c.ExecutorLabels {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}
	return labels
}

func (c *Config) validateLabels() error {
	for _, label := range c.ExecutorLabels {
		if key, _, found := strings.Cut(label, "="); !found || key == "" {
			return &Error{Setting: "executor_labels", Problem: fmt.Sprintf("cannot have %.100q", label), Fix: "write KEY=VALUE"}
		}
	}
	if len(c.Labels()) < len(c.ExecutorLabels) {
		return &Error{Setting: "executor_labels", Problem: "has a key twice"}
	}
	return nil
}
