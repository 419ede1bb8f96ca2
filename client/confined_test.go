package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// recordingConn is a channel that records requests.
type recordingConn struct{ sent []proto.Message }

func (c *recordingConn) Invoke(_ context.Context, _ string, args, _ any, _ ...grpc.CallOption) error {
	c.sent = append(c.sent, args.(proto.Message))
	return nil
}

func (c *recordingConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return caughtStream{ctx: ctx, catcher: c}, nil
}

type caughtStream struct {
	grpc.ClientStream
	ctx     context.Context
	catcher *recordingConn
}

func (s caughtStream) Context() context.Context { return s.ctx }
func (s caughtStream) CloseSend() error         { return nil }
func (s caughtStream) RecvMsg(any) error        { return io.EOF }
func (s caughtStream) SendMsg(m any) error {
	s.catcher.sent = append(s.catcher.sent, m.(proto.Message))
	return nil
}

// policyPaths returns the field paths to the policies in a message.
func policyPaths(m protoreflect.MessageDescriptor) (paths [][]protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		if field.Message() == nil || field.IsList() || field.IsMap() {
			continue
		}
		if field.Message() == (*execwirev1.SandboxPolicy)(nil).ProtoReflect().Descriptor() {
			paths = append(paths, []protoreflect.FieldDescriptor{field})
			continue
		}
		for _, rest := range policyPaths(field.Message()) {
			paths = append(paths, append([]protoreflect.FieldDescriptor{field}, rest...))
		}
	}
	return paths
}

// Every request of the contract that can carry a policy must get it, including requests
// added later; the request of the caller is unchanged.
func TestWithSandbox_EveryRequest_CarriesPolicy(t *testing.T) {
	policy, found := Sandbox{}.Policy(), 0
	for _, file := range []protoreflect.FileDescriptor{execwirev1.File_execwire_v1_process_service_proto, execwirev1.File_execwire_v1_filesystem_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				for _, path := range policyPaths(method.Input()) {
					found++
					caught := &recordingConn{}
					request := messageOf(t, method.Input())
					at := request
					for _, field := range path[:len(path)-1] {
						at = at.Mutable(field).Message()
					}
					before := proto.Clone(request.Interface())
					send(t, New(caught).WithSandbox(policy), method, request.Interface())
					if len(caught.sent) != 1 || !proto.Equal(request.Interface(), before) {
						t.Fatalf("%s: %d were sent, and the caller's is %v", method.FullName(), len(caught.sent), request)
					}
					value := caught.sent[0].ProtoReflect()
					for _, field := range path {
						value = value.Get(field).Message()
					}
					if !proto.Equal(value.Interface(), policy) {
						t.Errorf("%s, at %v: sent %v", method.FullName(), path, caught.sent[0])
					}
				}
			}
		}
	}
	if found < 18 {
		t.Errorf("%d ways to a policy were found", found)
	}
}

func messageOf(t *testing.T, m protoreflect.MessageDescriptor) protoreflect.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New()
}

// send calls a method as generated stubs do.
func send(t *testing.T, c *Client, method protoreflect.MethodDescriptor, request proto.Message) {
	t.Helper()
	conn := c.channel
	name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		if err := conn.Invoke(t.Context(), name, request, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(request); err != nil {
		t.Fatal(err)
	}
}

func TestWithSandbox_RequestWithPolicy_IsUnchanged(t *testing.T) {
	caught := &recordingConn{}
	confined := New(caught).WithSandbox(Sandbox{}.Policy())
	own := Sandbox{Network: true}.Policy()
	if _, err := confined.Files().GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{Path: "/x", Sandbox: own}); err != nil {
		t.Fatal(err)
	}
	if got := caught.sent[0].(*execwirev1.GetMetadataRequest).GetSandbox(); !proto.Equal(got, own) {
		t.Errorf("sent %v", got)
	}
	if _, err := confined.Files().CloseFile(t.Context(), &execwirev1.CloseFileRequest{}); err != nil {
		t.Errorf("a request that cannot carry one: %v", err)
	}
	prepared := &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{Prepared: &execwirev1.PreparedCommand{}}}}
	_, err := confined.Processes().StartProcess(t.Context(), prepared)
	if err == nil || !strings.Contains(err.Error(), "carries no sandbox") || len(caught.sent) != 2 {
		t.Errorf("a prepared command: %v, sent %d", err, len(caught.sent))
	}
	if _, err := confined.Run(t.Context(), RunOptions{Process: prepared}); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run of a prepared command: %v", err)
	}
}
