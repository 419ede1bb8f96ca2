package inproc_test

import (
	"bytes"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/execwire/execwire/internal/inproc"
)

// reuseAfter is what a handler learns.
func reuseAfter(ss grpc.ServerStream) int {
	if s, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(interface{ ReuseAfter() int }); ok {
		return s.ReuseAfter()
	}
	return 0
}

// A handler that reuses memory as early as allowed never changes what the caller
// still reads, as shown by the content and the race detector.
func TestHandsBack_MemoryIsReused(t *testing.T) {
	const messages = 5000
	reused := 0
	ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
		byTurns := make([][]byte, reuseAfter(ss))
		for i := range messages {
			memory := &byTurns[i%len(byTurns)]
			if *memory == nil {
				*memory = make([]byte, 64)
			} else {
				reused++
			}
			for j := range *memory {
				(*memory)[j] = byte(i)
			}
			if err := ss.SendMsg(wrapperspb.Bytes(*memory)); err != nil {
				return err
			}
		}
		return nil
	}})
	cs, err := ch.NewStream(guarded(t), &grpc.StreamDesc{ServerStreams: true}, serverMethod, inproc.HandBack{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		m := new(wrapperspb.BytesValue)
		if err := cs.RecvMsg(m); err != nil {
			t.Fatal(err)
		}
		if want := bytes.Repeat([]byte{byte(i)}, 64); !bytes.Equal(m.GetValue(), want) {
			t.Fatalf("message %d of a queue of %d is %v", i, queueDepth, m.GetValue())
		}
	}
	if got := recv(cs); got != "EOF" {
		t.Errorf("the stream ends with %s", got)
	}
	if want := messages - queueDepth - 2; reused != want {
		t.Errorf("memory was used again for %d messages of a queue of %d, want %d", reused, queueDepth, want)
	}
}

// Without the option, and over a network, memory is never reused.
func TestHandsBack_Absent_MemoryIsNotReused(t *testing.T) {
	for _, c := range carriers {
		got := make(chan int, 1)
		s := &stub{stream: func(ss grpc.ServerStream) error {
			got <- reuseAfter(ss)
			return nil
		}}
		if answer := recv(open(t, guarded(t), c.connect(t, s, chain{}), serverMethod)); answer != "EOF" {
			t.Errorf("%s: the stream ends with %s", c.name, answer)
		}
		if after := <-got; after != 0 {
			t.Errorf("%s: memory may be used again after %d messages", c.name, after)
		}
	}
}
