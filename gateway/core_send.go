package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

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
	if p.message.GetData() == nil { // which is sent in pieces
		if failed := r.messageFits(p.message); failed != nil {
			return nil, failed
		}
	}
	if err := p.send(s.stream); err != nil {
		_, err := s.receive()
		s.failed = err
		if err == nil {
			err = io.EOF // it was answered before it was sent to its end
		}
		return nil, fileFailure(err)
	}
	return nothing{}, nil
}

// send sends large data in pieces, each with memory of its own: what waits for the
// core, after the client was answered, is no more than some of these.
func (p *coreSendParams) send(stream grpc.ClientStream) error {
	data := p.message.GetData()
	if len(data) <= coreMessageBytes {
		return stream.SendMsg(p.message)
	}
	for piece := range slices.Chunk(data, coreMessageBytes) {
		message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: bytes.Clone(piece)}}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
	return nil
}
