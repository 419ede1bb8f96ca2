package files

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// pathMethod is a method of FileSystemService whose request has paths. All of them are found in
// the contract.
type pathMethod struct {
	protoreflect.MethodDescriptor
	head  protoreflect.FieldDescriptor   // of the request, which has the paths; nil if the request has them
	paths []protoreflect.FieldDescriptor // each of which is text, and has a raw_ field beside it
}

func pathMethods(t testing.TB) []pathMethod {
	t.Helper()
	var methods []pathMethod
	all := execwirev1.File_execwire_v1_filesystem_proto.Services().ByName("FileSystemService").Methods()
	for i := range all.Len() {
		m := pathMethod{MethodDescriptor: all.Get(i)}
		input := m.Input()
		if head := input.Fields().ByName("head"); head != nil {
			m.head, input = head, head.Message()
		}
		for j := range input.Fields().Len() {
			f := input.Fields().Get(j)
			if input.Fields().ByName("raw_"+f.Name()) != nil && !f.IsList() && strings.HasSuffix(string(f.Name()), "path") {
				m.paths = append(m.paths, f)
			}
		}
		if len(m.paths) > 0 {
			methods = append(methods, m)
		}
	}
	if len(methods) < 10 {
		t.Fatalf("the contract has %d methods with paths", len(methods))
	}
	return methods
}

func newMessage(t testing.TB, d protoreflect.MessageDescriptor) protoreflect.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New()
}

// requested counts requests, whose ids are to be new.
var requested atomic.Int64

// request is a request with these paths, and with what else it has to have: the
// first value of an enumeration that means something, and an id.
func (m pathMethod) request(t testing.TB, paths ...string) proto.Message {
	t.Helper()
	whole := newMessage(t, m.Input())
	part := whole
	if m.head != nil {
		part = whole.Mutable(m.head).Message()
	}
	fields := part.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.Kind() == protoreflect.EnumKind && !f.HasPresence() && !f.IsList():
			part.Set(f, protoreflect.ValueOfEnum(1))
		case f.Name() == "handle_id" || f.Name() == "target":
			part.Set(f, protoreflect.ValueOfString(fmt.Sprint("x", requested.Add(1))))
		}
	}
	for i, f := range m.paths {
		if utf8.ValidString(paths[i]) {
			part.Set(f, protoreflect.ValueOfString(paths[i]))
		} else {
			part.Set(fields.ByName("raw_"+f.Name()), protoreflect.ValueOfBytes([]byte(paths[i])))
		}
	}
	return whole.Interface()
}

// call makes a call and returns its answers, of one that watches the first alone.
func (m pathMethod) call(ctx context.Context, t testing.TB, conn grpc.ClientConnInterface, paths ...string) ([]proto.Message, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(harness.ErrStop)
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name)
	if err == nil {
		_ = stream.SendMsg(m.request(t, paths...)) // receiving returns the error
		if end := m.Input().Fields().ByName("end"); end != nil {
			last := newMessage(t, m.Input())
			last.Mutable(end)
			_ = stream.SendMsg(last.Interface())
		}
		err = stream.CloseSend()
	}
	var answers []proto.Message
	for err == nil {
		answer := newMessage(t, m.Output()).Interface()
		if err = stream.RecvMsg(answer); err == nil {
			answers = append(answers, answer)
			if strings.HasPrefix(string(m.Name()), "Watch") {
				return answers, nil
			}
		}
	}
	if err == io.EOF {
		err = nil
	}
	return answers, err
}
