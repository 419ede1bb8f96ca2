package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The values of Config.RequiredSandbox. Any other value is the path of a policy.
const (
	SandboxOff            = "off"
	SandboxReadOnly       = "read-only"
	SandboxWorkspaceWrite = "workspace-write"
)

// The names in Config.SandboxBackends.
const (
	BackendBubblewrap = "bubblewrap"
	BackendLandlock   = "landlock"
)

// UsesBackend reports whether a backend may be used.
func (c *Config) UsesBackend(name string) bool {
	return slices.Contains(c.SandboxBackends, "auto") || slices.Contains(c.SandboxBackends, name)
}

// HasSandboxNetwork reports whether the required sandbox allows the network, unless
// it is the policy of a file.
func (c *Config) HasSandboxNetwork() bool { return c.SandboxNetwork == switchedOn }

// validateSandbox checks that the settings beside a required sandbox have an effect,
// because an operator who sets them relies on them.
func (c *Config) validateSandbox() error {
	if err := c.validateBackends(); err != nil {
		return err
	}
	word := c.RequiredSandbox == SandboxReadOnly || c.RequiredSandbox == SandboxWorkspaceWrite
	switch {
	case c.RequiredSandbox != SandboxOff && !word && !filepath.IsAbs(c.RequiredSandbox):
		return invalid("require_sandbox", c.RequiredSandbox, "write off, read-only, workspace-write or the absolute path of a file with a policy")
	case c.RequiredSandbox == SandboxWorkspaceWrite && len(c.SandboxWritableRoots) == 0:
		return &Error{Setting: "sandbox_writable_roots", Problem: "is needed when require_sandbox is workspace-write",
			Fix: "list the directories that may be written to, or require read-only"}
	case c.RequiredSandbox != SandboxWorkspaceWrite && len(c.SandboxWritableRoots) > 0:
		return &Error{Setting: "sandbox_writable_roots", Problem: "needs require_sandbox to be workspace-write"}
	case c.HasSandboxNetwork() && !word:
		return &Error{Setting: "sandbox_network", Problem: "needs require_sandbox to be read-only or workspace-write",
			Fix: "a policy in a file says itself whether the network is reached"}
	}
	for _, root := range c.SandboxWritableRoots {
		if !filepath.IsAbs(root) {
			return invalid("sandbox_writable_roots", root, "write absolute paths")
		}
	}
	return nil
}

func (c *Config) validateBackends() error {
	if len(c.SandboxBackends) == 1 && (c.SandboxBackends[0] == "auto" || c.SandboxBackends[0] == SandboxOff) {
		return nil
	}
	for _, name := range c.SandboxBackends {
		if name != BackendBubblewrap && name != BackendLandlock {
			return backendsError(fmt.Sprintf("cannot be %q", strings.Join(c.SandboxBackends, ", ")))
		}
	}
	if len(c.SandboxBackends) == 0 {
		return backendsError("is empty")
	}
	return nil
}

func backendsError(problem string) error {
	return &Error{Setting: "sandbox_backends", Problem: problem, Fix: "write auto, off, or a list out of bubblewrap and landlock"}
}
