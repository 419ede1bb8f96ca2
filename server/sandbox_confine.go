package server

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// requiredField is the name of the required policy in errors.
const requiredField = "require_sandbox"

// errConfinesNothing is the error for a required policy that allows everything.
var errConfinesNothing = errors.New("the policy confines nothing: name what may be read and written, or restrict the network; or require no sandbox")

// CheckRequired rejects a policy that cannot be Config.RequiredSandbox of a server
// with that Environ: one that is malformed, allows everything, or cannot be enforced
// here. It waits until the backends are probed, or ctx ends.
func CheckRequired(ctx context.Context, policy *execwirev1.SandboxPolicy, sandboxes *sandbox.Sandboxes, environ []string) error {
	translated, err := toSandboxPolicy(requiredField, policy)
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	if translated == nil {
		return errConfinesNothing
	}
	plan, err := translated.Resolve(ctx, serverOptions(environ))
	if err != nil {
		return err
	}
	if !plan.Confines() {
		return errConfinesNothing
	}
	if err := sandboxes.Wait(ctx); err != nil {
		return err
	}
	_, err = sandboxes.Confine(plan)
	return err
}

// RestrictsNetwork reports whether a policy restricts the network.
func RestrictsNetwork(policy *execwirev1.SandboxPolicy) bool {
	managed := policy.GetManaged()
	return managed != nil && managed.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

// serverOptions returns the options of the required policy and of file calls. They are
// the server's own, because the environment of a request must not widen it.
func serverOptions(environ []string) sandbox.ResolveOptions {
	return sandbox.ResolveOptions{TmpDir: temporaryDirectory(environ)}
}

// plan returns the plan for a request: the requested policy, narrowed to the required
// one. field is where the policy is in the request, and options resolve its special
// paths. Nil is unconfined. If there is a policy, plan waits until the backends are
// probed, or ctx ends.
func (s *Server) plan(ctx context.Context, field string, policy *execwirev1.SandboxPolicy, options sandbox.ResolveOptions) (*sandbox.Plan, error) {
	required, err := resolve(ctx, requiredField, s.cfg.RequiredSandbox, serverOptions(s.cfg.Environ))
	if err != nil {
		return nil, err
	}
	options.Within = required
	plan, err := resolve(ctx, field, policy, options)
	switch {
	case err != nil:
		return nil, err
	case plan == nil:
		plan = required
	case required != nil:
		plan = plan.Narrow(required)
	}
	if plan == nil || !plan.Confines() {
		return nil, nil
	}
	if s.cfg.Sandboxes != nil {
		err = s.cfg.Sandboxes.Wait(ctx)
	}
	return plan, err
}

// resolve translates a policy into a plan; nil if it is external or allows
// everything.
func resolve(ctx context.Context, field string, message *execwirev1.SandboxPolicy, options sandbox.ResolveOptions) (*sandbox.Plan, error) {
	policy, err := toSandboxPolicy(field, message)
	if err != nil || policy == nil {
		return nil, err
	}
	plan, err := policy.Resolve(ctx, options)
	return plan, fromSandbox(field, err)
}

// confine chooses the backend that enforces a plan.
func (s *Server) confine(field string, plan *sandbox.Plan) (*sandbox.Confinement, error) {
	confinement, err := cmp.Or(s.cfg.Sandboxes, &sandbox.Sandboxes{}).Confine(plan)
	return confinement, fromSandbox(field, err)
}
