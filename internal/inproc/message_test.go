package inproc_test

import (
	"context"
	"testing"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// carry sends m through a bidirectional stream once for each message in into.
func carry(t *testing.T, m proto.Message, into ...proto.Message) {
	t.Helper()
	ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
		for range into {
			if err := ss.SendMsg(m); err != nil {
				return err
			}
		}
		return nil
	}})
	cs := open(t, guarded(t), ch, serverMethod)
	_ = cs.SendMsg(txt(""))
	for _, dst := range into {
		if err := cs.RecvMsg(dst); err != nil {
			t.Fatalf("failed to receive: %v", err)
		}
	}
}

// A byte of output is not copied before it is encoded for the client.
func TestStream_BytesAreNotCopied(t *testing.T) {
	sent := wrapperspb.Bytes(make([]byte, 1<<20))
	got := new(wrapperspb.BytesValue)
	carry(t, sent, got)
	if len(got.GetValue()) != 1<<20 || unsafe.SliceData(got.GetValue()) != unsafe.SliceData(sent.GetValue()) {
		t.Error("the received bytes are not the sender's memory")
	}
	if got == sent {
		t.Error("the receiver's message is the sender's own")
	}
}

func TestUnary_BytesAreNotCopied(t *testing.T) {
	sent, answer := txt("request"), txt("answer")
	ch := serve(t, &stub{unary: func(_ context.Context, in *text) (*text, error) {
		if unsafe.StringData(in.GetValue()) != unsafe.StringData(sent.GetValue()) {
			t.Error("the request's text is not the caller's memory")
		}
		return answer, nil
	}})
	got := new(text)
	if err := ch.Invoke(guarded(t), unaryMethod, sent, got); err != nil {
		t.Fatal(err)
	}
	if unsafe.StringData(got.GetValue()) != unsafe.StringData(answer.GetValue()) {
		t.Error("the answer's text is not the handler's memory")
	}
}

func TestMessage_EveryKindOfField(t *testing.T) {
	list, err := structpb.NewValue(map[string]any{"a": []any{1.0, "x", nil, true}, "b": map[string]any{}})
	if err != nil {
		t.Fatal(err)
	}
	unknown := wrapperspb.Bool(true)
	unknown.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "later"))
	for _, tc := range []struct {
		name string
		sent proto.Message
	}{
		{"oneof, map, list", list},
		{"scalars, enums, messages", &typepb.Field{
			Kind: typepb.Field_TYPE_BYTES, Number: 7, Name: "data", Packed: true,
			Options: []*typepb.Option{{Name: "o"}},
		}},
		{"nested", &typepb.Type{Name: "T", Oneofs: []string{"a", "b"}, SourceContext: nil, Fields: []*typepb.Field{{Name: "f"}}}},
		{"unknown fields", unknown},
		{"empty", new(structpb.Struct)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.sent.ProtoReflect().New().Interface()
			carry(t, tc.sent, got)
			if !proto.Equal(tc.sent, got) {
				t.Errorf("got %v, want %v", got, tc.sent)
			}
		})
	}
}

// RecvMsg may be given a used message.
func TestMessage_ReusedTarget_IsReset(t *testing.T) {
	got := &typepb.Field{Name: "old", Number: 9}
	carry(t, &typepb.Field{Name: "new"}, got)
	if want := (&typepb.Field{Name: "new"}); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A message may be sent to many receivers; each may change its copy.
func TestMessage_ReceiversAreIndependent(t *testing.T) {
	first, second := new(typepb.Field), new(typepb.Field)
	carry(t, &typepb.Field{Name: "f"}, first, second)
	first.Name = "changed"
	if second.GetName() != "f" {
		t.Error("a change to one received message shows in another")
	}
}

func TestMessage_OtherGoType_IsInternal(t *testing.T) {
	ch := serve(t, &stub{unary: func(context.Context, *text) (*text, error) { return txt("hello"), nil }})
	err := ch.Invoke(guarded(t), unaryMethod, txt(""), dynamicpb.NewMessage((*text)(nil).ProtoReflect().Descriptor()))
	if status.Code(err) != codes.Internal {
		t.Errorf("a dynamic message received %v, want Internal", err)
	}
}
