package inproc_test

import (
	"context"
	"testing"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// carry sends m through a bidirectional stream and receives into the messages
// given, one for each time it is sent.
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

// This is what the channel is for: a byte of output is copied by the encoder of
// the door it leaves through and nowhere before.
func TestBytesAreNotCopied(t *testing.T) {
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

func TestUnaryBytesAreNotCopied(t *testing.T) {
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

func TestEveryKindOfFieldArrives(t *testing.T) {
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

// RecvMsg may be given a message that was used before.
func TestOldFieldsDoNotSurvive(t *testing.T) {
	got := &typepb.Field{Name: "old", Number: 9}
	carry(t, &typepb.Field{Name: "new"}, got)
	if want := (&typepb.Field{Name: "new"}); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// One message may be sent to many; what one receiver does to its copy is its own
// affair.
func TestReceiversDoNotShareTheirMessages(t *testing.T) {
	first, second := new(typepb.Field), new(typepb.Field)
	carry(t, &typepb.Field{Name: "f"}, first, second)
	first.Name = "changed"
	if second.GetName() != "f" {
		t.Error("a change to one received message shows in another")
	}
}

func TestAnotherGoTypeIsReencoded(t *testing.T) {
	got := dynamicpb.NewMessage((*text)(nil).ProtoReflect().Descriptor())
	carry(t, txt("hello"), got)
	if v := got.Get(got.Descriptor().Fields().ByName("value")).String(); v != "hello" {
		t.Errorf("a dynamic message received %q, want hello", v)
	}
}
