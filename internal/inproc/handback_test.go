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

// A handler learns that the caller hands back what it acknowledges; over a network it does not.
func TestHandsBackAcknowledged_HandlerLearnsIt(t *testing.T) {
	for _, c := range carriers {
		learned := make(chan bool, 1)
		conn := c.connect(t, &stub{stream: func(ss grpc.ServerStream) error {
			s, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(interface{ HandsBackAcknowledged() bool })
			learned <- ok && s.HandsBackAcknowledged()
			return nil
		}}, chain{})
		for _, opts := range [][]grpc.CallOption{{inproc.HandBackAcknowledged{}}, {inproc.HandBack{}}, nil} {
			cs, err := conn.NewStream(guarded(t), &grpc.StreamDesc{ServerStreams: true}, serverMethod, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got := recv(cs); got != "EOF" {
				t.Errorf("%s: the stream ends with %s", c.name, got)
			}
			_, promised := any(append(opts, nil)[0]).(inproc.HandBackAcknowledged)
			if got, want := <-learned, promised && c.name == "inproc"; got != want {
				t.Errorf("%s: the handler learns %t with %v", c.name, got, opts)
			}
		}
	}
}
