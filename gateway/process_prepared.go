package gateway

import (
	"encoding/json"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// isPrepared reports whether the client has resolved the command: it named the
// file to execute.
func (p *startParams) isPrepared() bool { return p.Executable != nil }

// checkPrepared refuses what would have the core resolve a prepared command after
// all.
func (p *startParams) checkPrepared() *jsonrpc.Error {
	if !p.isPrepared() {
		return nil
	}
	executable, err := parsePath("executable", *p.Executable)
	if err != nil {
		return invalidMember("executable", "is not an absolute path: "+err.Message)
	}
	if !executable.uri {
		executable.native = *p.Executable // exactly
	}
	p.executable = executable
	for _, beside := range []struct {
		name    string
		isGiven bool
	}{
		{"arg0", p.Arg0 != nil},
		{"envPolicy", p.EnvPolicy != nil},
		{"sandbox", isGiven(p.Sandbox)},
		{"sandboxPolicy", isGiven(p.Policy)},
		{"networkProxy", isGiven(p.NetworkProxy)},
		{"managedNetwork", isGiven(p.ManagedNetwork)},
		{"enforceManagedNetwork", p.EnforceManagedNetwork != nil},
	} {
		if beside.isGiven {
			return invalidMember(beside.name, "is not for an `executable`, which is executed exactly as it is given: leave one of them out")
		}
	}
	return nil
}

func isGiven(member json.RawMessage) bool { return member != nil && string(member) != "null" }

// prepared is the command as the client has resolved it.
func (p *startParams) prepared() *execwirev1.ProcessCommand {
	return &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{Prepared: &execwirev1.PreparedCommand{
		Executable:       p.executable.native,
		Argv:             p.Argv,
		WorkingDirectory: p.cwd.native,
		Env:              p.Env,
	}}}
}
