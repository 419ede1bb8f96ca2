package server

import (
	"context"
	"errors"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

// requiredField is what a policy that the server requires is called in errors.
const requiredField = "require_sandbox"

// CheckPolicy refuses a policy that no request could be confined by, as
// Config.RequiredSandbox.
func CheckPolicy(policy *execwirev1.SandboxPolicy) error {
	_, err := toSandboxPolicy(requiredField, policy)
	return err
}

// plan finds out what a request is to be confined by: the policy that it asks for,
// narrowed to the one that the server requires. The field is where the policy is
// in the request. Beside what they say, both grant what also says. Nil confines
// nothing.
func (s *Server) plan(ctx context.Context, field string, policy *execwirev1.SandboxPolicy, around sandbox.Surroundings, also ...sandbox.Entry) (*sandbox.Plan, error) {
	plan, err := resolve(ctx, field, policy, around, also)
	if err != nil {
		return nil, err
	}
	required, err := resolve(ctx, requiredField, s.cfg.RequiredSandbox, around, also)
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
	return plan, nil
}

// resolve makes a plan of a policy; nil if the policy leaves the confinement to
// others, or to nobody.
func resolve(ctx context.Context, field string, message *execwirev1.SandboxPolicy, around sandbox.Surroundings, also []sandbox.Entry) (*sandbox.Plan, error) {
	policy, err := toSandboxPolicy(field, message)
	if err != nil || policy == nil {
		return nil, err
	}
	if !policy.Unrestricted {
		policy.Entries = append(policy.Entries, also...)
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
