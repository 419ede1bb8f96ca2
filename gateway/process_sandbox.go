package gateway

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/sandboxjson"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// managedNetworkParams is the part of the network that a client asks to allow.
type managedNetworkParams struct {
	_ struct{} `param:",strict"`

	LoopbackPorts     []uint16 `param:"loopbackPorts,optional,nullable"`
	AllowLocalBinding *bool    `param:"allowLocalBinding"`
}

// confinedParams are the members of process/start about its sandbox.
type confinedParams struct {
	Sandbox               json.RawMessage `param:"sandbox,optional"`
	EnforceManagedNetwork *bool           `param:"enforceManagedNetwork,optional"`
	ManagedNetwork        json.RawMessage `param:"managedNetwork,optional"`
	Policy                json.RawMessage `param:"sandboxPolicy,optional,named"`
	NetworkProxy          json.RawMessage `param:"networkProxy,optional,named"`
}

// parse returns the policy of a process that is started in cwd; nil without a sandbox.
// It clears the members: they alias the message.
func (p *confinedParams) parse(cwd param.Path) (*execwirev1.SandboxPolicy, *jsonrpc.Error) {
	r := sandboxjson.Parser{URIPaths: cwd.URI, Workspace: &cwd}
	draft, err := r.Parse(param.Take(&p.Sandbox), param.Take(&p.Policy))
	if err != nil {
		return nil, err
	}
	return draft.ForProcess(), p.checkNetwork(draft, param.Take(&p.ManagedNetwork), param.Take(&p.NetworkProxy))
}

// checkNetwork rejects a network that is allowed in part, which nothing here can
// enforce. A policy that denies the network satisfies a request that requires a managed
// network.
func (p *confinedParams) checkNetwork(draft *sandboxjson.Policy, managed, proxy json.RawMessage) *jsonrpc.Error {
	if param.IsGiven(proxy) {
		return sandboxjson.Unavailable("this server starts no proxies, so that `networkProxy` cannot be enforced: leave it out, and restrict the network")
	}
	demanded := p.EnforceManagedNetwork != nil && *p.EnforceManagedNetwork
	if param.IsGiven(managed) {
		demanded = true
		var params managedNetworkParams
		if err := param.DecodeObject("managedNetwork", managed, &params); err != nil {
			return err
		}
		if len(params.LoopbackPorts) > 0 || params.AllowLocalBinding != nil && *params.AllowLocalBinding {
			return sandboxjson.Unavailable("this server cannot let a part of the network through, so that `managedNetwork` cannot be enforced: leave it out, and restrict the network")
		}
	}
	if demanded && !draft.RestrictsNetwork() {
		return sandboxjson.Unavailable("a managed network is demanded without a `sandbox` whose network is restricted, which is what can be enforced")
	}
	return nil
}
