package gateway

import (
	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// method is one method of the protocol.
type method struct {
	// group is the name of its methods in the error for a call before initialize.
	group string
	// control lets it use the permits reserved for requests that end, signal or query.
	control bool
	// optional means that its parameters may be absent; ignored, that they are not
	// decoded.
	optional, ignored bool
	// new returns an empty call: an ownCall, a [files.Call] or
	// a [*httpcalls.Request].
	new func() any
}

// Groups of methods.
const (
	groupExec        = "exec"
	groupFiles       = "filesystem"
	groupEnvironment = "environment info"
	groupHTTP        = "http"
	groupPorts       = "port"
)

// methods are the methods that need an initialized session.
var methods = withFiles(map[string]method{
	"process/start":     {group: groupExec, new: newCall[startParams]},
	"process/read":      {group: groupExec, new: newCall[readParams]},
	"process/write":     {group: groupExec, new: newCall[writeParams]},
	"process/signal":    {group: groupExec, control: true, new: newCall[signalParams]},
	"process/terminate": {group: groupExec, control: true, new: newCall[terminateParams]},

	// Extensions of the reference.
	"process/closeStdin": {group: groupExec, new: newCall[closeStdinParams]},
	"process/resize":     {group: groupExec, control: true, new: newCall[resizeParams]},
	"process/wait":       {group: groupExec, new: newCall[waitParams]},
	"process/snapshot":   {group: groupExec, new: newCall[snapshotParams]},
	"process/list":       {group: groupExec, optional: true, new: newCall[listParams]},

	"port/list":    {group: groupPorts, optional: true, new: newCall[portListParams]},
	"port/watch":   {group: groupPorts, new: newCall[portWatchParams]},
	"port/unwatch": {group: groupPorts, control: true, new: newCall[portUnwatchParams]},

	"command/exec":           {group: groupExec, new: newCall[commandParams]},
	"command/exec/write":     {group: groupExec, new: newCall[commandWriteParams]},
	"command/exec/terminate": {group: groupExec, control: true, new: newCall[commandTerminateParams]},

	"environment/info":   {group: groupEnvironment, control: true, ignored: true, new: newCall[environmentInfoCall]},
	"environment/status": {group: groupEnvironment, control: true, ignored: true, new: newCall[environmentStatusCall]},

	"http/request": {group: groupHTTP, new: newCall[httpcalls.Request]},
})

func newCall[P any]() any { return new(P) }

func withFiles(all map[string]method) map[string]method {
	for name, m := range files.Methods {
		all[name] = method{group: groupFiles, control: m.Control, new: func() any { return m.New() }}
	}
	return all
}

// decode decodes the parameters of a call, which must not alias them.
func (m method) decode(params []byte, service *files.Service) (any, *jsonrpc.Error) {
	decoded := m.new()
	if m.ignored {
		return decoded, nil
	}
	if params == nil && m.optional {
		params = []byte("{}")
	}
	if err := jsonrpc.DecodeParams(params, decoded); err != nil {
		return nil, err
	}
	if c, ok := decoded.(call.Checked); ok {
		if err := c.Check(); err != nil {
			return nil, err
		}
	}
	if c, ok := decoded.(files.Call); ok {
		return decoded, service.Check(c)
	}
	return decoded, nil
}

// blockingCall is a call of a control method. If it may block for long, it uses an
// ordinary permit.
type blockingCall interface{ blocks() bool }
