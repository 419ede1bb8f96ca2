package gateway

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// managedNetworkParams are what a network that is let through in part lets through.
type managedNetworkParams struct {
	_ struct{} `param:",strict"`

	LoopbackPorts     []uint16 `param:"loopbackPorts,optional,nullable"`
	AllowLocalBinding *bool    `param:"allowLocalBinding"`
}

// readSandbox translates what the request says about its sandbox, which is then
// gone: it is a part of the message.
func (p *startParams) readSandbox() *jsonrpc.Error {
	r := sandboxReader{newer: p.cwd.uri, workspace: &p.cwd}
	draft, err := r.read(takeRaw(&p.Sandbox), takeRaw(&p.Policy))
	if err != nil {
		return err
	}
	p.policy = draft.forProcess()
	return p.checkNetwork(draft, takeRaw(&p.ManagedNetwork), takeRaw(&p.NetworkProxy))
}

// checkNetwork refuses a network that is to be let through in part, which nothing
// here can enforce. A policy that lets nothing through is enough where one is
// demanded.
func (p *startParams) checkNetwork(draft *policyDraft, managed, proxy json.RawMessage) *jsonrpc.Error {
	if isGiven(proxy) {
		return sandboxRefused("this server starts no proxies, so that `networkProxy` cannot be enforced: leave it out, and restrict the network")
	}
	demanded := p.EnforceManagedNetwork != nil && *p.EnforceManagedNetwork
	if isGiven(managed) {
		demanded = true
		var params managedNetworkParams
		if err := decodeObject("managedNetwork", managed, &params); err != nil {
			return err
		}
		if len(params.LoopbackPorts) > 0 || isSet(params.AllowLocalBinding) {
			return sandboxRefused("this server cannot let a part of the network through, so that `managedNetwork` cannot be enforced: leave it out, and restrict the network")
		}
	}
	if demanded && !draft.restrictsNetwork() {
		return sandboxRefused("a managed network is demanded without a `sandbox` whose network is restricted, which is what can be enforced")
	}
	return nil
}

// sandboxType is what confines a process, as clients know it: every backend filters
// system calls.
func sandboxType(started *execwirev1.Process) string {
	if started.GetSandbox() == nil {
		return "none"
	}
	return "linuxSeccomp"
}
