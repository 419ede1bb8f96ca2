package outputcodec_test

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client/internal/outputcodec"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func output(seq uint64, size int) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{
		Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDERR, Offset: 7 * seq, Data: bytes.Repeat([]byte{byte(seq)}, size)}}}
}

func events(of ...*execwirev1.ProcessEvent) *execwirev1.RunProcessResponse {
	return &execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Events{Events: &execwirev1.RunEvents{Events: of}}}
}

var closed = &execwirev1.ProcessEvent{Seq: 9, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}

// A stream of messages is decoded as by the codec of gRPC, in whatever pieces they arrive.
func TestCodec_DecodesLikeTheDefault(t *testing.T) {
	large, err := proto.Marshal(events(output(1, 30_000)))
	if err != nil {
		t.Fatal(err)
	}
	started, err := proto.Marshal(&execwirev1.RunProcessResponse{Message: &execwirev1.RunProcessResponse_Started{Started: &execwirev1.RunStarted{OwnerId: "o"}}})
	if err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendBytes(protowire.AppendTag(nil, 100, protowire.BytesType), make([]byte, 10_000))
	messages := [][]byte{large, started, slices.Concat(large, started), slices.Concat(started, large), slices.Concat(large, large), slices.Concat(unknown, large, unknown), unknown, large[:20_000], {}}
	for _, m := range []*execwirev1.RunProcessResponse{
		events(output(1, 100)), events(output(1, 0)), events(closed), events(),
		events(output(1, 10_000), output(2, 20_000)), events(output(1, 10), output(2, 20_000)), events(closed, output(1, 20_000), closed),
	} {
		encoded, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, encoded)
	}
	codec, standard := outputcodec.New(), encoding.GetCodecV2(grpcproto.Name)
	for i, message := range messages {
		for _, piece := range []int{len(message), 16_000, 777} {
			var data mem.BufferSlice
			for part := range slices.Chunk(slices.Clone(message), max(piece, 1)) {
				data = append(data, mem.SliceBuffer(part))
			}
			var got, want execwirev1.RunProcessResponse
			err, wantErr := codec.Unmarshal(data, &got), standard.Unmarshal(data, &want)
			if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(&got, &want) {
				t.Errorf("message %d of %d bytes in pieces of %d: %v, want %v, and equal is %t", i, len(message), piece, err, wantErr, proto.Equal(&got, &want))
			}
		}
	}
}

func TestCodec_OtherMessages(t *testing.T) {
	codec := outputcodec.New()
	want := output(1, 20_000)
	data, err := codec.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Free()
	var got execwirev1.ProcessEvent
	if err := codec.Unmarshal(data, &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("decoded another message with %v", err)
	}
	if codec.Name() != grpcproto.Name {
		t.Errorf("the name is %q", codec.Name())
	}
}

func FuzzCodec_DecodesLikeTheDefault(f *testing.F) {
	for _, m := range []*execwirev1.RunProcessResponse{events(output(1, 9000)), events(output(1, 5), output(2, 9000), closed)} {
		encoded, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		data := mem.BufferSlice{mem.SliceBuffer(message)}
		var got, want execwirev1.RunProcessResponse
		err, wantErr := outputcodec.New().Unmarshal(data, &got), encoding.GetCodecV2(grpcproto.Name).Unmarshal(data, &want)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("decoded with %v, want %v", err, wantErr)
		}
	})
}
