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

// readSandbox parses the sandbox of the request and clears it: it aliases the message.
func (p *startParams) readSandbox() *jsonrpc.Error {
	r := sandboxjson.Parser{URIPaths: p.cwd.URI, Workspace: &p.cwd}
	draft, err := r.Parse(param.Take(&p.Sandbox), param.Take(&p.Policy))
	if err != nil {
		return err
	}
	p.policy = draft.ForProcess()
	return p.checkNetwork(draft, param.Take(&p.ManagedNetwork), param.Take(&p.NetworkProxy))
}

// checkNetwork rejects a network that is allowed in part, which nothing here can
// enforce. A policy that denies the network satisfies a request that requires a managed
// network.
func (p *startParams) checkNetwork(draft *sandboxjson.Policy, managed, proxy json.RawMessage) *jsonrpc.Error {
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

// sandboxType returns the reference's name for the sandbox of a process: every backend
// filters system calls.
func sandboxType(started *execwirev1.Process) string {
	if started.GetSandbox() == nil {
		return "none"
	}
	return "linuxSeccomp"
}
