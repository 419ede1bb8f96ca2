package gateway

import (
	"context"
	"io"

	"github.com/execwire/execwire/gateway/jsonrpc"
	"github.com/execwire/execwire/internal/tracecontext"
)

// method is one method of the protocol.
type method struct {
	// group is what its methods are called where they come too early.
	group string
	// control has it use the permits that are kept for requests that end things,
	// when there are no others.
	control bool
	// decode reads the parameters, and what it has seen of sandboxes before. What it
	// returns must not alias the parameters.
	decode decoding
}

// Groups of methods.
const (
	groupExec        = "exec"
	groupFiles       = "filesystem"
	groupEnvironment = "environment info"
	groupHTTP        = "http"
	groupCore        = "core"
)

type decoding func(params []byte, seen *seenSandboxes) (call, *jsonrpc.Error)

// methods are those that need an initialized session.
var methods = map[string]method{
	"process/start":     {group: groupExec, decode: decoder[startParams]()},
	"process/read":      {group: groupExec, decode: decoder[readParams]()},
	"process/write":     {group: groupExec, decode: decoder[writeParams]()},
	"process/signal":    {group: groupExec, control: true, decode: decoder[signalParams]()},
	"process/terminate": {group: groupExec, control: true, decode: decoder[terminateParams]()},

	// Beyond the reference.
	"process/acknowledge": {group: groupExec, control: true, decode: decoder[acknowledgeParams]()},
	"process/closeStdin":  {group: groupExec, decode: decoder[closeStdinParams]()},
	"process/resize":      {group: groupExec, control: true, decode: decoder[resizeParams]()},
	"process/wait":        {group: groupExec, decode: decoder[waitParams]()},
	"process/snapshot":    {group: groupExec, decode: decoder[snapshotParams]()},
	"process/list":        {group: groupExec, decode: absentIsEmpty(decoder[listParams]())},

	"command/exec":           {group: groupExec, decode: decoder[commandParams]()},
	"command/exec/write":     {group: groupExec, decode: decoder[commandWriteParams]()},
	"command/exec/terminate": {group: groupExec, control: true, decode: decoder[commandTerminateParams]()},

	"environment/info":   {group: groupEnvironment, control: true, decode: decodeNothing(environmentInfoCall{})},
	"environment/status": {group: groupEnvironment, control: true, decode: decodeNothing(environmentStatusCall{})},

	"fs/readFile":        {group: groupFiles, decode: decoder[fsReadFileParams]()},
	"fs/writeFile":       {group: groupFiles, decode: decoder[fsWriteFileParams]()},
	"fs/createDirectory": {group: groupFiles, decode: decoder[fsCreateDirectoryParams]()},
	"fs/getMetadata":     {group: groupFiles, decode: decoder[fsGetMetadataParams]()},
	"fs/readDirectory":   {group: groupFiles, decode: decoder[fsReadDirectoryParams]()},
	"fs/remove":          {group: groupFiles, decode: decoder[fsRemoveParams]()},
	"fs/copy":            {group: groupFiles, decode: decoder[fsCopyParams]()},
	"fs/canonicalize":    {group: groupFiles, decode: decoder[fsCanonicalizeParams]()},

	"fs/rename": {group: groupFiles, decode: decoder[fsRenameParams]()},

	"fs/walk": {group: groupFiles, decode: decoder[fsWalkParams]()},

	"fs/open":       {group: groupFiles, decode: decoder[fsOpenParams]()},
	"fs/readBlock":  {group: groupFiles, decode: decoder[fsReadBlockParams]()},
	"fs/writeBlock": {group: groupFiles, decode: decoder[fsWriteBlockParams]()},
	"fs/close":      {group: groupFiles, control: true, decode: decoder[fsCloseParams]()},

	"fs/watch":        {group: groupFiles, decode: decoder[fsWatchParams]()},
	"fs/unwatch":      {group: groupFiles, control: true, decode: decoder[fsUnwatchParams]()},
	"fs/watchMissing": {group: groupFiles, decode: decoder[fsWatchMissingParams]()},

	"http/request": {group: groupHTTP, decode: decoder[httpRequestParams]()},

	"core/call":    {group: groupCore, decode: decoder[coreCallParams]()},
	"core/stream":  {group: groupCore, decode: decoder[coreStreamParams]()},
	"core/receive": {group: groupCore, decode: decoder[coreReceiveParams]()},
	"core/send":    {group: groupCore, decode: decoder[coreSendParams]()},
	"core/cancel":  {group: groupCore, control: true, decode: decoder[coreCancelParams]()},
}

// call is a request whose parameters were decoded.
type call interface {
	// run carries it out. The result is written by encoding/json unless it is an
	// [appendable] or a [streamable].
	run(ctx context.Context, r *request) (result any, failed *jsonrpc.Error)
}

// appendable is a result that writes itself.
type appendable interface{ appendTo(dst []byte) []byte }

// streamable is a result that is written as it comes. It is one JSON value. An
// error after the first byte ends the connection.
type streamable interface{ streamTo(w io.Writer) error }

// noted is a result that has to know when it was said.
type noted interface{ wasSaid() }

// patient is a call of a method that has permits of its own, which may wait long
// nevertheless: it then takes one of those for all others.
type patient interface{ waits() bool }

// checked is a call that can be refused for what its parameters say.
type checked interface{ check() *jsonrpc.Error }

// decoder returns a decoder of parameters that are a call.
func decoder[P any, C interface {
	*P
	call
}]() decoding {
	return func(params []byte, seen *seenSandboxes) (call, *jsonrpc.Error) {
		decoded := C(new(P))
		if err := jsonrpc.DecodeParams(params, decoded); err != nil {
			return nil, err
		}
		if c, ok := any(decoded).(confinedCall); ok {
			c.remember(seen)
		}
		if c, ok := any(decoded).(checked); ok {
			if err := c.check(); err != nil {
				return nil, err
			}
		}
		return decoded, nil
	}
}

// absentIsEmpty is for methods all of whose parameters are optional.
func absentIsEmpty(decode decoding) decoding {
	return func(params []byte, seen *seenSandboxes) (call, *jsonrpc.Error) {
		if params == nil {
			params = []byte("{}")
		}
		return decode(params, seen)
	}
}

// decodeNothing is for methods whose parameters do not matter.
func decodeNothing(c call) decoding {
	return func([]byte, *seenSandboxes) (call, *jsonrpc.Error) { return c, nil }
}

// request is one request that is being carried out.
type request struct {
	*connection
	id      jsonrpc.ID
	trace   tracecontext.Context
	call    call
	permit  permit
	hasLeft bool // the permit was given back
	turn    turn
	holds   []*hold
	follows []byte // a notification that comes right after the answer
}

// request takes a request from the receiving goroutine.
func (c *connection) request(m jsonrpc.Message, bytes int) {
	if m.Method == "initialize" {
		c.answerInline(c.initialize(m))
		return
	}
	known, ok := methods[m.Method]
	if !ok {
		c.refuse(m.ID, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "exec-server stub does not implement `%s` yet", shorten(m.Method)))
		return
	}
	var decoded call
	var err *jsonrpc.Error
	if !c.gateway.reading.pass(c.ctx, bytes, func() { decoded, err = known.decode(m.Params, &c.sandboxes) }) {
		return
	}
	if err == nil {
		err = c.admits(known.group)
	}
	var held permit
	if err == nil {
		waiting, ok := decoded.(patient)
		held, err = c.permits.enter(known.control && !(ok && waiting.waits()), bytes)
	}
	if err != nil {
		c.refuse(m.ID, err)
		return
	}
	r := &request{connection: c, id: m.ID, trace: traceOf(m), call: decoded, permit: held}
	c.enter(r)
	c.spawn(r.serve)
}

// admits says what has to come before methods of the group, if anything.
func (c *connection) admits(group string) *jsonrpc.Error {
	switch {
	case c.session == nil:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must call initialize before using %s methods", group)
	case !c.isLive:
		return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "client must send initialized before using %s methods", group)
	}
	return nil
}

// serve carries the request out and answers it. What the answer has to precede
// is said after it.
func (r *request) serve() {
	defer r.contain()
	defer r.leavePermit() // where nothing could be said
	result, failed := r.carryOut()
	r.unlimitHolds()
	r.call = nil                       // which must not wait for a client that does not read
	_, streamed := result.(streamable) // what it is made from is read with the answer
	if !streamed {
		r.turn.end()
	}
	if r.calls.Err() == nil {
		r.answer(result, failed)
	}
	if streamed {
		r.turn.end()
	}
	r.permits.answered()
	r.release()
}

// leavePermit gives the permit back, once.
func (r *request) leavePermit() {
	if !r.hasLeft {
		r.hasLeft = true
		r.permits.leave(r.permit)
	}
}

// carryOut waits until it is the request's turn and carries it out.
func (r *request) carryOut() (any, *jsonrpc.Error) {
	if err := r.turn.wait(r.calls); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternal, "the connection is being closed")
	}
	ctx := traced(r.calls, r.trace)
	if confined, ok := r.call.(confinedCall); ok {
		if failed := confined.checkCwd(ctx, r); failed != nil {
			return nil, failed
		}
	}
	return r.call.run(ctx, r)
}

// answer says the answer, and gives the permit back right before. If it cannot
// be said, the receiving goroutine learns that the connection is lost, or is
// told.
func (r *request) answer(result any, failed *jsonrpc.Error) {
	if streamed, ok := result.(streamable); ok && failed == nil {
		if err := r.out.stream(func(w io.Writer) error { return r.streamAnswer(w, streamed) }); err != nil {
			r.end(ending{closeInternal, "an answer could not be completed", err})
		}
		return
	}
	said := false
	err := r.out.say(func(dst []byte) ([]byte, bool) {
		if said {
			dst, r.follows = append(dst, r.follows...), nil
			return dst, len(dst) > 0
		}
		said = true
		r.leavePermit()
		return r.appendAnswer(dst, result, failed), true
	})
	if err != nil {
		r.end(ending{closeInternal, "an answer could not be sent", err})
		return
	}
	r.out.answered.Add(1)
	if n, ok := result.(noted); ok && failed == nil {
		n.wasSaid()
	}
}

func (r *request) appendAnswer(dst []byte, result any, failed *jsonrpc.Error) []byte {
	switch own, ok := result.(appendable); {
	case failed != nil:
		return jsonrpc.AppendError(dst, r.id, r.inFull(failed))
	case ok:
		dst = own.appendTo(r.appendHead(dst))
		return append(dst, '}')
	}
	return jsonrpc.AppendResult(dst, r.id, result)
}

func (r *request) appendHead(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = r.id.Append(dst)
	return append(dst, `,"result":`...)
}

func (r *request) streamAnswer(w io.Writer, result streamable) error {
	r.leavePermit()
	if _, err := w.Write(r.appendHead(nil)); err != nil {
		return err
	}
	if err := result.streamTo(w); err != nil {
		return err
	}
	_, err := w.Write([]byte{'}'})
	return err
}
