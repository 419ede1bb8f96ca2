package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

const (
	// maxStreams is how many streams of the core a connection may have open.
	maxStreams = 128
	// maxStreamIDBytes is the longest id of a stream.
	maxStreamIDBytes = 128
	// answeredBytes is how much of a file is answered at once, in bytes.
	answeredBytes = 256 << 10
	// coreMessageBytes is what a message of a file has at most, that is downloaded or
	// was sent to the core by us.
	coreMessageBytes = 64 << 10
)

// errStreamCancelled ends a stream that the client does not want any more.
var errStreamCancelled = errors.New("the client cancelled the stream")

// coreStreamParams are the parameters of core/stream.
type coreStreamParams struct {
	StreamID string          `param:"streamId"`
	Method   string          `param:"method"`
	Request  json.RawMessage `param:"request,optional"`

	method  *coreMethod
	request proto.Message
	asked   *coreStream
	full    *jsonrpc.Error // which limit leaves no room for it
}

func (p *coreStreamParams) check() (err *jsonrpc.Error) {
	if len(p.StreamID) > maxStreamIDBytes {
		return invalidMember("streamId", fmt.Sprintf("is longer than %d bytes", maxStreamIDBytes))
	}
	if p.method, err = findCoreMethod(p.Method, true); err != nil {
		return err
	}
	p.request, err = parseCoreMessage("request", takeRaw(&p.Request), p.method.in)
	return err
}

func (p *coreStreamParams) streamID() string { return p.StreamID }

func (p *coreStreamParams) touches() ([]string, bool) {
	return pathsOf(p.request.ProtoReflect()), p.method.changes
}

// enterStream notes that a stream is asked for, which takes its place among what is
// bounded of a connection. It is called in the order in which requests came.
func (c *connection) enterStream(p *coreStreamParams) {
	p.asked = c.streams.ask(p.StreamID, p.method)
	switch {
	case p.Method == coreFetch:
		var http httpRequestParams
		if c.httpPlaces.enter(&http); http.place != nil {
			p.asked.leave = http.place.leave
		}
		p.full = http.full
	case p.method.watches():
		p.asked.leave, p.full = c.watches.enterStream()
	}
}

// run opens the stream with its first message. What it fails with is told when it is
// received.
func (p *coreStreamParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	opened, failed := p.asked, p.full
	if failed == nil {
		failed = r.messageFits(p.request)
	}
	wanted := false
	if failed == nil {
		wanted, failed = r.streams.reserve(opened)
	}
	if !wanted {
		r.streams.end(opened, nil)
		return nothing{}, failed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stream, err := r.upstream.NewStream(ctx, p.method.description(), p.method.name, grpc.MaxCallRecvMsgSize(maxCoreMessage))
	if err != nil {
		cancel(err)
		r.streams.end(opened, err)
		return nil, fileFailure(err)
	}
	// This keeps gRPC from repeating the stream by itself: see upload.
	_ = stream.Context()
	// When sending fails the stream has ended, and receiving says why.
	if err := stream.SendMsg(p.request); err == nil && !p.method.sends {
		_ = stream.CloseSend()
	}
	if !r.streams.began(opened, stream, cancel) {
		cancel(errStreamCancelled)
	}
	return nothing{}, nil
}

// coreCancelParams are the parameters of core/cancel.
type coreCancelParams struct {
	StreamID string `param:"streamId"`
}

// run has nothing to do: the stream was ended when the request came, before any that
// came later. That there is none is as good.
func (p *coreCancelParams) run(context.Context, *request) (any, *jsonrpc.Error) {
	return nothing{}, nil
}
