package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/secretfile"
	"github.com/execwire/execwire/server"
)

// probeDelay is how long after its start a server probes the sandboxes, unless a
// request needs one before. It keeps the probe from delaying the first answers.
const probeDelay = time.Second

// openSandboxes returns the sandboxes and the required policy, if any. Only with a
// required policy it waits for the probe of the backends. The caller closes the
// sandboxes.
func openSandboxes(cfg config.Config, environ []string) (*sandbox.Sandboxes, *execwirev1.SandboxPolicy, error) {
	sandboxes := sandbox.New(sandboxOptions(cfg))
	required, err := requiredSandbox(cfg)
	if err == nil && required != nil {
		err = server.CheckRequired(context.Background(), required, sandboxes, environ)
	}
	if err != nil {
		sandboxes.Close()
		return nil, nil, explainRequired(cfg, err)
	}
	return sandboxes, required, nil
}

func sandboxOptions(cfg config.Config) sandbox.Options {
	options := sandbox.Options{Bubblewrap: cfg.Bubblewrap}
	for name, backend := range map[string]sandbox.Backend{
		config.BackendBubblewrap: sandbox.Bubblewrap, config.BackendLandlock: sandbox.Landlock,
	} {
		if !cfg.UsesBackend(name) {
			options.Without = append(options.Without, backend)
		}
	}
	return options
}

// requiredSandbox returns the required policy; nil if none is required.
func requiredSandbox(cfg config.Config) (*execwirev1.SandboxPolicy, error) {
	switch cfg.RequiredSandbox {
	case config.SandboxOff:
		return nil, nil
	case config.SandboxReadOnly:
		return client.Sandbox{Network: cfg.HasSandboxNetwork()}.Policy(), nil
	case config.SandboxWorkspaceWrite:
		return client.Sandbox{Writable: cfg.SandboxWritableRoots, Temporary: true, Network: cfg.HasSandboxNetwork()}.Policy(), nil
	}
	text, err := secretfile.Public(cfg.RequiredSandbox)
	if err != nil {
		return nil, err
	}
	policy := &execwirev1.SandboxPolicy{}
	if err := protojson.Unmarshal(text, policy); err != nil {
		return nil, &secretfile.Error{File: cfg.RequiredSandbox, Problem: "is no SandboxPolicy as JSON of protobuf", Err: err}
	}
	return policy, nil
}

// explainRequired returns the error for a required sandbox that cannot be enforced.
func explainRequired(cfg config.Config, err error) error {
	problem := "cannot be " + cfg.RequiredSandbox + " here: " + err.Error()
	if _, ok := errors.AsType[*secretfile.Error](err); ok {
		return &config.Error{Setting: "require_sandbox", Problem: "cannot be read: " + err.Error()}
	}
	fix := ""
	if sandbox.KindOf(err) == sandbox.Unavailable {
		fix = "execwire doctor says more; fix one of them, or require less"
	}
	return &config.Error{Setting: "require_sandbox", Problem: problem, Fix: fix}
}

// probeSandboxes probes the sandboxes some time after the start, and logs the result.
// It returns at the latest when ctx ends.
func (d *Daemon) probeSandboxes(ctx context.Context) {
	timer := time.NewTimer(probeDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	if d.sandboxes.Wait(ctx) != nil {
		return
	}
	logSandboxes(d.opts.Logger, d.sandboxes.Statuses())
}

func logSandboxes(logger *slog.Logger, statuses []sandbox.Status) {
	works := false
	for _, status := range statuses {
		if status.Err == nil {
			works = true
			logger.Info("a sandbox works", "backend", status.Backend.String(), "program", status.Path)
			continue
		}
		logger.Info("a sandbox does not work", "backend", status.Backend.String(), "reason", status.Err.Error())
	}
	if !works {
		logger.Warn("no sandbox works: requests with one are refused; execwire doctor explains how to fix it")
	}
}
