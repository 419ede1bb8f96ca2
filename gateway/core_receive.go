package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

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
