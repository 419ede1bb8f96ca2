package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// maxStreams is how many streams of the core a connection may have open.
	maxStreams = 128
	// maxStreamIDBytes is the longest id of a stream.
	maxStreamIDBytes = 128
	// answeredBytes is how much of a file is answered at once, in bytes.
	answeredBytes = 256 << 10
	// coreMessageBytes is what a message of a file that is downloaded has at most.
	coreMessageBytes = 64 << 10
)

// errStreamCancelled ends a stream that the client does not want any more.
var errStreamCancelled = errors.New("the client cancelled the stream")

// coreStreams are the streams of the core that a connection has open. They end with
// it. The zero value is ready.
type coreStreams struct {
	order fileOrder // of calls on the same stream

	mu   sync.Mutex
	byID map[string]*coreStream // guarded by mu
}

// coreStream is one of them. Calls on it follow each other, but for the end.
type coreStream struct {
	id     string
	method *coreMethod
	cancel context.CancelCauseFunc
	place  *httpPlace // nil unless it is of HTTP

	stream grpc.ClientStream // nil until it is open
	failed error             // what is to be told when it is received next
}

// streamCall is a call on a stream, which must not overtake those before.
type streamCall interface {
	call
	streamID() string
}

// reserve takes the id for a stream that is to be opened.
func (s *coreStreams) reserve(id string, method *coreMethod, place *httpPlace) (*coreStream, *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byID[id] != nil:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "stream `%s` already exists", shorten(id))
	case len(s.byID) >= maxStreams:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeLimitReached, Message: fmt.Sprintf("at most %d streams may be open per connection", maxStreams),
			Data: map[string]any{"limit": maxStreams}}
	case s.byID == nil:
		s.byID = make(map[string]*coreStream)
	}
	opened := &coreStream{id: id, method: method, place: place}
	s.byID[id] = opened
	return opened, nil
}

func (s *coreStreams) find(id string) (*coreStream, *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byID[id]; found != nil && found.stream != nil {
		return found, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeNotFound, Message: "unknown stream `" + shorten(id) + "`", Data: map[string]string{"reason": "STREAM_NOT_FOUND"}}
}

// end ends a stream and gives its id back.
func (s *coreStreams) end(old *coreStream, why error) {
	s.mu.Lock()
	if s.byID[old.id] == old {
		delete(s.byID, old.id)
	}
	cancel := old.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
	if old.place != nil {
		old.place.leave()
	}
}

// began notes what a stream that was reserved is, unless it was cancelled meanwhile.
func (s *coreStreams) began(opened *coreStream, stream grpc.ClientStream, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened.stream, opened.cancel = stream, cancel
	return s.byID[opened.id] == opened
}

// coreStreamParams are the parameters of core/stream.
type coreStreamParams struct {
	StreamID string          `param:"streamId"`
	Method   string          `param:"method"`
	Request  json.RawMessage `param:"request,optional"`

	method  *coreMethod
	request proto.Message
	http    httpRequestParams // has the place of a request over HTTP
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

// run opens the stream with its first message. What it fails with is told when it is
// received.
func (p *coreStreamParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if p.http.full != nil {
		return nil, p.http.full
	}
	opened, failed := r.streams.reserve(p.StreamID, p.method, p.http.place)
	if failed != nil {
		if p.http.place != nil {
			p.http.place.leave()
		}
		return nil, failed
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

// coreReceiveParams are the parameters of core/receive.
type coreReceiveParams struct {
	StreamID string `param:"streamId"`
}

func (p *coreReceiveParams) streamID() string { return p.StreamID }

// run waits for the next message, and has those of a file come together. The one
// response to a stream of requests is asked for with the end of those.
func (p *coreReceiveParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	s, failed := r.streams.find(p.StreamID)
	if failed != nil {
		return nil, failed
	}
	if s.method.sends {
		_ = s.stream.CloseSend() // when that fails, receiving says why
	}
	if s.method.waits {
		stop := context.AfterFunc(r.polls, func() { r.streams.end(s, errStreamCancelled) })
		defer stop()
	}
	answer := &coreResponses{leave: func() {}}
	if s.method.receives && !s.method.waits { // what comes at once can be large
		if answer.leave, failed = r.bulk.enter(ctx); failed != nil {
			return nil, failed
		}
	}
	if failed := s.answer(r, answer); failed != nil {
		answer.leave()
		return nil, failed
	}
	return answer, nil
}

// answer takes what the answer to a client is.
func (s *coreStream) answer(r *request, into *coreResponses) *jsonrpc.Error {
	first, err := s.receive()
	switch {
	case errors.Is(context.Cause(s.stream.Context()), errStreamCancelled):
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "the stream was cancelled", Data: map[string]string{"reason": "CALL_CANCELLED"}}
	case err != nil && !errors.Is(err, io.EOF):
		r.streams.end(s, err)
		return fileFailure(err)
	}
	into.ended = err != nil || !s.method.receives
	if err == nil {
		into.messages = []receivedMessage{first}
		s.gather(into)
	}
	if into.ended {
		r.streams.end(s, nil)
	}
	return nil
}

// receivedMessage is a message as it is answered: its data where it is nothing else,
// and else the JSON form of protobuf.
type receivedMessage struct{ data, text []byte }

// receive returns the next message, or what the last call left over to tell.
func (s *coreStream) receive() (receivedMessage, error) {
	if s.failed != nil {
		return receivedMessage{}, s.failed
	}
	message := s.method.out.New().Interface()
	if err := s.stream.RecvMsg(message); err != nil {
		return receivedMessage{}, err
	}
	if data := dataOfMessage(message); data != nil {
		return receivedMessage{data: data}, nil
	}
	text, err := protojson.Marshal(message)
	return receivedMessage{text: text}, err
}

// gather adds what follows of a file, which comes at once, as long as there is room.
func (s *coreStream) gather(into *coreResponses) {
	if s.method.name != coreDownload {
		return
	}
	for size := 0; size+coreMessageBytes <= answeredBytes && !into.ended; {
		message, err := s.receive()
		switch {
		case errors.Is(err, io.EOF):
			into.ended = true
		case err != nil:
			s.failed = err
			return
		default:
			size += len(message.data)
			into.messages = append(into.messages, message)
		}
	}
}

// coreResponses is the result of core/receive.
type coreResponses struct {
	messages []receivedMessage
	ended    bool
	leave    func()
}

func (a *coreResponses) appendTo(dst []byte) []byte {
	dst = append(dst, `{"responses":[`...)
	for i, m := range a.messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		if m.data != nil {
			dst = append(jsonrpc.AppendBase64(append(dst, `{"data":`...), m.data), '}')
		}
		dst = append(dst, m.text...)
	}
	return fmt.Appendf(dst, `],"ended":%t}`, a.ended)
}

func (a *coreResponses) wasSaid() { a.leave() }

// coreSendParams are the parameters of core/send.
type coreSendParams struct {
	StreamID string          `param:"streamId"`
	Data     jsonrpc.Base64  `param:"data,optional"`
	Message  json.RawMessage `param:"message,optional,named"`

	message *execwirev1.UploadFileRequest
}

func (p *coreSendParams) check() *jsonrpc.Error {
	raw := takeRaw(&p.Message)
	if isGiven(raw) == (p.Data != nil) {
		return invalidMember("data", "or `message` has to be there, and not both")
	}
	p.message = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: p.Data}}
	if isGiven(raw) {
		message, err := parseCoreMessage("message", raw, p.message.ProtoReflect().Type())
		if err != nil {
			return err
		}
		p.message, _ = message.(*execwirev1.UploadFileRequest)
	}
	return nil
}

func (p *coreSendParams) streamID() string { return p.StreamID }

// run sends a message as soon as there is room for it. The stream of a failure stays
// until that is received.
func (p *coreSendParams) run(_ context.Context, r *request) (any, *jsonrpc.Error) {
	s, failed := r.streams.find(p.StreamID)
	if failed != nil {
		return nil, failed
	}
	if !s.method.sends {
		return nil, invalidMember("streamId", "is of a stream that takes no more messages")
	}
	if err := s.stream.SendMsg(p.message); err != nil {
		_, err := s.receive()
		s.failed = err
		if err == nil {
			err = io.EOF // it was answered before it was sent to its end
		}
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}

// coreCancelParams are the parameters of core/cancel.
type coreCancelParams struct {
	StreamID string `param:"streamId"`
}

// run ends the stream at once. That there is none is as good.
func (p *coreCancelParams) run(_ context.Context, r *request) (any, *jsonrpc.Error) {
	r.streams.mu.Lock()
	s := r.streams.byID[p.StreamID]
	r.streams.mu.Unlock()
	if s != nil {
		r.streams.end(s, errStreamCancelled)
	}
	return nothing{}, nil
}
