package connectrpc

import (
	"context"
	"errors"
	"io"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/execwire/execwire/internal/inproc"
)

// method is a method of the contract, as its descriptor says.
type method struct {
	name              string // full name: /SERVICE/METHOD
	desc              grpc.StreamDesc
	request, response protoreflect.MessageType
}

// newMethod returns a method. It panics if the generated code of a message is not linked
// into the program.
func newMethod(d protoreflect.MethodDescriptor) *method {
	m := &method{
		name: "/" + string(d.Parent().FullName()) + "/" + string(d.Name()),
		desc: grpc.StreamDesc{StreamName: string(d.Name()), ClientStreams: d.IsStreamingClient(), ServerStreams: d.IsStreamingServer()},
	}
	for into, name := range map[*protoreflect.MessageType]protoreflect.FullName{&m.request: d.Input().FullName(), &m.response: d.Output().FullName()} {
		message, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			panic("connectrpc: " + string(name) + ": " + err.Error())
		}
		*into = message
	}
	return m
}

func (m *method) isBidi() bool { return m.desc.ClientStreams && m.desc.ServerStreams }

// spec describes the method to package connect. Its idempotency is unknown, whatever the
// contract says, so that it cannot be called by GET: browsers send a GET to any host, and
// without an Origin.
func (m *method) spec() connect.Spec {
	spec := connect.Spec{Procedure: m.name}
	if m.desc.ClientStreams {
		spec.StreamType |= connect.StreamTypeClient
	}
	if m.desc.ServerStreams {
		spec.StreamType |= connect.StreamTypeServer
	}
	return spec
}

// errEnded cancels the forwarded call when that of the client has ended.
var errEnded = errors.New("the call of the HTTP client has ended")

// serve forwards a call of one client.
func (m *method) serve(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
	in := requestOf(ctx)
	err := in.admit(ctx, m.name)
	if err != nil {
		return toConnect(err)
	}
	info, _ := connect.CallInfoForServerContext(ctx) // always there
	ctx, cancel := context.WithCancelCause(in.outgoing(in.call.Context))
	defer cancel(errEnded)
	switch {
	case m.desc.ClientStreams:
		err = m.forwardUpload(ctx, cancel, in, stream, info)
	case m.desc.ServerStreams:
		err = m.forwardStream(ctx, in.call.Conn, stream, info)
	default:
		err = m.forwardUnary(ctx, in.call.Conn, stream, info)
	}
	if err != nil && in.call.Fail != nil {
		err = in.call.Fail(err)
	}
	return toConnect(err)
}

// serveUnknown refuses a call of a method that the contract does not have.
func serveUnknown(ctx context.Context, spec connect.Spec, _ connect.ServerStream) error {
	if err := requestOf(ctx).admit(ctx, spec.Procedure); err != nil {
		return toConnect(err)
	}
	return connect.Errorf(connect.CodeUnimplemented, "the contract has no method %s", spec.Procedure)
}

// receive receives the only message of a client.
func (m *method) receive(stream connect.ServerStream) (proto.Message, error) {
	message := m.request.New().Interface()
	return message, stream.Receive(message)
}

// addMetadata adds metadata of the server to those of the response.
func addMetadata(to *connect.Header, md metadata.MD) {
	for key, values := range md {
		if key == "content-type" || strings.HasPrefix(key, "grpc-") { // of the connection to the server
			continue
		}
		for _, value := range values {
			if strings.HasSuffix(key, "-bin") {
				value = connect.EncodeBinaryHeader([]byte(value))
			}
			to.Add(key, value)
		}
	}
}

func (m *method) forwardUnary(ctx context.Context, conn grpc.ClientConnInterface, stream connect.ServerStream, info *connect.CallInfo) error {
	message, err := m.receive(stream)
	if err != nil {
		return err
	}
	response := m.response.New().Interface()
	var header, trailer metadata.MD
	err = conn.Invoke(ctx, m.name, message, response, grpc.Header(&header), grpc.Trailer(&trailer))
	addMetadata(info.ResponseHeader(), header)
	addMetadata(info.ResponseTrailer(), trailer)
	if err != nil {
		return err
	}
	return stream.Send(response)
}

// forwardStream forwards a call with a stream of responses, each when the client's
// connection has taken the one before.
func (m *method) forwardStream(ctx context.Context, conn grpc.ClientConnInterface, stream connect.ServerStream, info *connect.CallInfo) error {
	message, err := m.receive(stream)
	if err != nil {
		return err
	}
	upstream, err := conn.NewStream(ctx, &m.desc, m.name, inproc.HandBack{}) // stream.Send encodes
	if err != nil {
		return err
	}
	if err := upstream.SendMsg(message); err != nil && err != io.EOF { // after io.EOF, RecvMsg returns the status
		return err
	}
	if err := upstream.CloseSend(); err != nil {
		return err
	}
	header, _ := upstream.Header() // after an error, RecvMsg returns the status
	addMetadata(info.ResponseHeader(), header)
	if info.ResponseHeader().Len() > 0 {
		if err := stream.SendHeaders(); err != nil {
			return err
		}
	}
	response := m.response.New().Interface()
	for {
		if err := upstream.RecvMsg(response); err != nil {
			addMetadata(info.ResponseTrailer(), upstream.Trailer())
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// forwardUpload forwards a call with a stream of requests. The response may come before
// the last request.
func (m *method) forwardUpload(ctx context.Context, cancel context.CancelCauseFunc, in *request, stream connect.ServerStream, info *connect.CallInfo) error {
	upstream, err := in.call.Conn.NewStream(ctx, &m.desc, m.name)
	if err != nil {
		return err
	}
	received := make(chan struct{}) // closed when nothing more is read from the client
	sent := make(chan error, 1)
	go func() {
		err := m.sendAll(upstream, stream, func() { close(received) })
		if err != nil {
			cancel(err)
		}
		sent <- err
	}()
	response := m.response.New().Interface()
	err = upstream.RecvMsg(response)
	header, _ := upstream.Header()
	addMetadata(info.ResponseHeader(), header)
	addMetadata(info.ResponseTrailer(), upstream.Trailer())
	cancel(errEnded)
	select {
	case <-received:
	default:
		in.stopReading()
	}
	if sendErr := <-sent; sendErr != nil && context.Cause(ctx) != errEnded { // it has ended the call
		return sendErr
	}
	if err != nil {
		return err
	}
	return stream.Send(response)
}

// sendAll forwards all requests of the client. It calls received when there are no more, or
// receiving one has failed. It returns an error only if receiving fails: if the call has
// ended, the status comes from RecvMsg.
func (m *method) sendAll(upstream grpc.ClientStream, stream connect.ServerStream, received func()) error {
	for {
		message := m.request.New().Interface() // a new one: it may be passed by pointer
		switch err := stream.Receive(message); {
		case errors.Is(err, io.EOF):
			received()
			return upstream.CloseSend()
		case err != nil:
			received()
			return err
		}
		if err := upstream.SendMsg(message); err != nil {
			return nil
		}
	}
}
