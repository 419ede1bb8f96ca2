package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errPreparedConfined is why a prepared command is not started by a client with a
// sandbox.
var errPreparedConfined = status.Error(codes.InvalidArgument, "a prepared command carries no sandbox, and this client has one: start it as a direct command, or by a client without")

// WithSandbox returns a client of the same server whose processes and calls about
// files are confined by policy, unless their request names one itself. Prepared
// commands, which carry no policy, fail. It never blocks. Closing what it returns
// does nothing; the client that it comes from must not be closed before.
func (c *Client) WithSandbox(policy *execwirev1.SandboxPolicy) *Client {
	return newClient(confined{ClientConnInterface: c.channel.ClientConnInterface, policy: proto.CloneOf(policy)}, c.life, nil)
}

// confined is a channel that puts a policy into every request that can carry one
// and has none.
type confined struct {
	grpc.ClientConnInterface
	policy *execwirev1.SandboxPolicy
}

// Invoke implements grpc.ClientConnInterface.
func (c confined) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	args, err := c.confine(args)
	if err != nil {
		return err
	}
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
}

// NewStream implements grpc.ClientConnInterface.
func (c confined) NewStream(ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := c.ClientConnInterface.NewStream(ctx, description, method, options...)
	if err != nil {
		return nil, err
	}
	return confinedStream{ClientStream: stream, confine: c.confine}, nil
}

type confinedStream struct {
	grpc.ClientStream
	confine func(any) (any, error)
}

// SendMsg implements grpc.ClientStream.
func (s confinedStream) SendMsg(m any) error {
	m, err := s.confine(m)
	if err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// confine returns a request with the policy. The request itself is the caller's,
// and stays as it is.
func (c confined) confine(m any) (any, error) {
	request, ok := m.(proto.Message)
	if !ok {
		return m, nil
	}
	with, err := c.confineMessage(request.ProtoReflect())
	if err != nil {
		return nil, err
	}
	return with.Interface(), nil
}

// confineMessage puts the policy into a message, or the parts of it that are there.
func (c confined) confineMessage(m protoreflect.Message) (protoreflect.Message, error) {
	if command, ok := m.Interface().(*execwirev1.ProcessCommand); ok && command.GetPrepared() != nil {
		return nil, errPreparedConfined
	}
	changed := map[protoreflect.FieldDescriptor]protoreflect.Message{}
	for i := range m.Descriptor().Fields().Len() {
		field := m.Descriptor().Fields().Get(i)
		switch {
		case field.Message() == nil || field.IsList() || field.IsMap():
		case field.Message() == c.policy.ProtoReflect().Descriptor():
			if !m.Has(field) {
				changed[field] = c.policy.ProtoReflect()
			}
		case m.Has(field):
			part, err := c.confineMessage(m.Get(field).Message())
			if err != nil {
				return nil, err
			}
			if part != m.Get(field).Message() {
				changed[field] = part
			}
		}
	}
	if len(changed) == 0 {
		return m, nil
	}
	with := m.New()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		with.Set(field, value)
		return true
	})
	for field, part := range changed {
		with.Set(field, protoreflect.ValueOfMessage(part))
	}
	return with, nil
}
