package gateway

import (
	"context"
	"io"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
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
	// new returns an empty call: a processCall, an environmentCall, a [files.Call] or
	// a [*httpcalls.Request].
	new func() any
}

// Groups of methods.
const (
	groupExec        = "exec"
	groupFiles       = "filesystem"
	groupEnvironment = "environment info"
	groupHTTP        = "http"
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

// ownCall is a call that this package executes.
type ownCall interface {
	// run executes the call. encoding/json encodes the result unless it is a
	// [call.Appendable] or a [call.Streamable].
	run(ctx context.Context, r *request) (result any, failed *jsonrpc.Error)
}

// blockingCall is a call of a control method. If it may block for long, it uses an
// ordinary permit.
type blockingCall interface{ blocks() bool }

// request is a request in flight.
type request struct {
	*connection
	id      jsonrpc.ID
	trace   tracecontext.Context
	call    any    // see method
	release func() // of the permit
	turn    call.Turn
	gates   []*eventGate
	follows []byte // a notification to send right after the answer
}

// request handles a request on the receiving goroutine.
func (c *connection) request(m jsonrpc.Message, bytes int) {
	if m.Method == "initialize" {
		c.postAnswer(c.initialize(m))
		return
	}
	known, ok := methods[m.Method]
	if !ok {
		c.refuse(m.ID, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "exec-server stub does not implement `%s` yet", param.Shorten(m.Method)))
		return
	}
	var decoded any
	var err *jsonrpc.Error
	if !c.gateway.decoding.run(c.ctx, bytes, func() { decoded, err = known.decode(m.Params, c.files) }) {
		return
	}
	if err == nil {
		err = c.admits(known.group)
	}
	var release func()
	if err == nil {
		waiting, ok := decoded.(blockingCall)
		release, err = c.permits.acquire(known.control && !(ok && waiting.blocks()), bytes)
	}
	if err != nil {
		c.refuse(m.ID, err)
		return
	}
	r := &request{connection: c, id: m.ID, trace: traceOf(m), call: decoded, release: release}
	c.enqueue(r)
	c.answering.Add(1)
	c.Spawn(r.serve)
}

// admits returns an error if the group's methods are not allowed yet.
func (c *connection) admits(group string) *jsonrpc.Error {
	switch {
	case c.session == nil:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must call initialize before using %s methods", group)
	case !c.isLive:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must send initialized before using %s methods", group)
	}
	return nil
}

// serve executes and answers the request, then opens its event gates.
func (r *request) serve() {
	defer r.recoverPanic()
	r.respond()
	r.openGates()
}

// respond executes and answers the request.
func (r *request) respond() {
	defer r.answering.Done()
	defer r.release() // if no answer could be sent
	result, failed := r.carryOut()
	r.unlimitGates()
	r.call = nil                            // free the parameters while a slow client reads the answer
	_, streamed := result.(call.Streamable) // its result is produced while it is sent
	if !streamed {
		r.turn.End()
	}
	if r.calls.Err() == nil {
		r.answer(result, failed)
	}
	if streamed {
		r.turn.End()
	}
}

// carryOut waits for the request's turn and runs the call.
func (r *request) carryOut() (any, *jsonrpc.Error) {
	if err := r.turn.Wait(r.calls); err != nil {
		return nil, call.Closing()
	}
	ctx := traced(r.calls, r.trace)
	switch c := r.call.(type) {
	case files.Call:
		return r.files.Run(ctx, c)
	case *httpcalls.Request:
		return r.http.Run(ctx, c)
	}
	return r.call.(ownCall).run(ctx, r)
}

// answer sends the answer and releases the permit just before. If sending fails, the
// connection ends.
func (r *request) answer(result any, failed *jsonrpc.Error) {
	if streamed, ok := result.(call.Streamable); ok && failed == nil {
		if err := r.out.stream(func(w io.Writer) error { return r.streamAnswer(w, streamed) }); err != nil {
			r.end(ending{closeInternal, "an answer could not be completed", err})
		}
		return
	}
	answered := false
	err := r.out.send(func(dst []byte) ([]byte, bool) {
		if answered {
			dst, r.follows = append(dst, r.follows...), nil
			return dst, len(dst) > 0
		}
		answered = true
		r.release()
		return r.appendAnswer(dst, result, failed), true
	})
	if err != nil {
		r.end(ending{closeInternal, "an answer could not be sent", err})
		return
	}
	r.out.answered.Add(1)
	if n, ok := result.(call.SendObserver); ok && failed == nil {
		n.Sent()
	}
}

func (r *request) appendAnswer(dst []byte, result any, failed *jsonrpc.Error) []byte {
	switch own, ok := result.(call.Appendable); {
	case failed != nil:
		return jsonrpc.AppendError(dst, r.id, failed)
	case ok:
		dst = own.AppendTo(r.appendHead(dst))
		return append(dst, '}')
	}
	return jsonrpc.AppendResult(dst, r.id, result)
}

func (r *request) appendHead(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = r.id.Append(dst)
	return append(dst, `,"result":`...)
}

func (r *request) streamAnswer(w io.Writer, result call.Streamable) error {
	r.release()
	if _, err := w.Write(r.appendHead(nil)); err != nil {
		return err
	}
	if err := result.StreamTo(w); err != nil {
		return err
	}
	_, err := w.Write([]byte{'}'})
	return err
}
