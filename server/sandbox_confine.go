package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// requiredField is what a policy that the server requires is called in errors.
const requiredField = "require_sandbox"

// errConfinesNothing is why a policy cannot be required.
var errConfinesNothing = errors.New("the policy confines nothing: name what may be read and written, or restrict the network; or require no sandbox")

// CheckRequired refuses a policy that cannot be Config.RequiredSandbox, of a server
// with that Environ: one that is malformed, that confines nothing, or that nothing
// of sandboxes can enforce here. The error says why. It waits until it is known
// what works, or ctx ends.
func CheckRequired(ctx context.Context, policy *execwirev1.SandboxPolicy, sandboxes *sandbox.Sandboxes, environ []string) error {
	translated, err := toSandboxPolicy(requiredField, policy)
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	if translated == nil {
		return errConfinesNothing
	}
	plan, err := translated.Resolve(ctx, requiredSurroundings(environ))
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

// RestrictsNetwork tells whether the network is not reached by what a policy
// confines.
func RestrictsNetwork(policy *execwirev1.SandboxPolicy) bool {
	managed := policy.GetManaged()
	return managed != nil && managed.GetNetwork() != execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED
}

// requiredSurroundings are what the policy that the server requires refers to: the
// server's own, because what a request says about its environment must not widen
// it.
func requiredSurroundings(environ []string) sandbox.Surroundings {
	return sandbox.Surroundings{TmpDir: temporaryDirectory(environ)}
}

// plan finds out what a request is to be confined by: the policy that it asks for,
// narrowed to the one that the server requires. The field is where the policy is
// in the request, and around what it refers to. Nil confines nothing. If there is
// something to confine it waits, until ctx ends, until it is known what works here.
func (s *Server) plan(ctx context.Context, field string, policy *execwirev1.SandboxPolicy, around sandbox.Surroundings) (*sandbox.Plan, error) {
	required, err := resolve(ctx, requiredField, s.cfg.RequiredSandbox, requiredSurroundings(s.cfg.Environ))
	if err != nil {
		return nil, err
	}
	around.Within = required
	plan, err := resolve(ctx, field, policy, around)
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

// resolve makes a plan of a policy; nil if the policy leaves the confinement to
// others, or to nobody.
func resolve(ctx context.Context, field string, message *execwirev1.SandboxPolicy, around sandbox.Surroundings) (*sandbox.Plan, error) {
	policy, err := toSandboxPolicy(field, message)
	if err != nil || policy == nil {
		return nil, err
	}
	plan, err := policy.Resolve(ctx, around)
	return plan, inPolicy(field, err)
}

// confine chooses what enforces a plan.
func (s *Server) confine(field string, plan *sandbox.Plan) (*sandbox.Confinement, error) {
	sandboxes := s.cfg.Sandboxes
	if sandboxes == nil {
		sandboxes = &sandbox.Sandboxes{}
	}
	confinement, err := sandboxes.Confine(plan)
	return confinement, inPolicy(field, err)
}

// inPolicy translates an error of package sandbox about the policy in a field.
func inPolicy(field string, err error) error {
	if refused := (*sandbox.Error)(nil); errors.As(err, &refused) {
		return fromSandbox(field, refused)
	}
	return err
}
