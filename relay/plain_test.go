package relay

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// bare serves one end of a carrier on the endpoint and returns the other.
func bare(t *testing.T, e *Endpoint) *pipeEnd {
	here, there := pipe()
	var serving sync.WaitGroup
	serving.Go(func() { _ = e.Run(context.Background(), here) })
	t.Cleanup(func() {
		_ = there.Close(0, "")
		serving.Wait()
	})
	return there
}

// sendFrame sends a frame as the reference implementation does.
func sendFrame(t *testing.T, to *pipeEnd, f *relayv1.RelayMessageFrame) {
	t.Helper()
	f.Version = 1
	b, err := proto.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Send(b); err != nil {
		t.Fatal(err)
	}
}

// sendData sends a message as the reference implementation does.
func sendData(t *testing.T, to *pipeEnd, id string, seq uint32, payload string) {
	t.Helper()
	sendFrame(t, to, &relayv1.RelayMessageFrame{StreamId: id, Body: &relayv1.RelayMessageFrame_Data{
		Data: &relayv1.RelayData{Seq: seq, SegmentCount: 1, Payload: []byte(payload)}}})
}

// receiveFrame returns the next frame, which must be of this stream.
func receiveFrame(t *testing.T, from *pipeEnd, id string) *relayv1.RelayMessageFrame {
	t.Helper()
	b, err := from.ReceiveOwned()
	if err != nil {
		t.Fatal(err)
	}
	f := new(relayv1.RelayMessageFrame)
	if err := proto.Unmarshal(b, f); err != nil {
		t.Fatal(err)
	}
	if f.GetStreamId() != id {
		t.Fatalf("the frame %v is not of stream %s", f, id)
	}
	return f
}

// An executor serves a peer that behaves like the reference implementation.
func TestPlainHarness(t *testing.T) {
	x := endpoint(t, Config{})
	peer := bare(t, x)
	sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}})
	sendData(t, peer, "s", 0, "hello")
	p := accept(t, x)
	expect(t, p, "hello")
	// Numbers mean nothing, and a repetition is another message.
	for _, seq := range []uint32{1, 1, 0, 7} {
		sendData(t, peer, "s", seq, "again")
		expect(t, p, "again")
	}
	large := strings.Repeat("x", 200_000)
	send(t, p, large)
	if f := receiveFrame(t, peer, "s"); string(f.GetData().GetPayload()) != large || f.GetData().GetSegmentCount() != 1 || f.GetAck()|f.GetAckBits() != 0 {
		t.Errorf("the answer is %.200v", f)
	}
	// A segment is dropped; after a reset the id begins anew.
	sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Body: &relayv1.RelayMessageFrame_Data{
		Data: &relayv1.RelayData{SegmentCount: 2, Payload: []byte("half")}}})
	sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Body: &relayv1.RelayMessageFrame_Reset_{Reset_: &relayv1.RelayReset{Reason: "done"}}})
	expectReset(t, p, "done", true)
	sendData(t, peer, "s", 0, "new")
	p = accept(t, x)
	expect(t, p, "new")
	if err := p.Send(within(t), []byte("first")); err != nil {
		t.Fatal(err)
	}
	if f := receiveFrame(t, peer, "s"); f.GetData().GetSeq() != 0 {
		t.Errorf("the first message of a new stream is %v", f)
	}
	_ = peer.Close(0, "")
	expectReset(t, p, ReasonCarrierLost, false)
}

// A harness detects that its peer is plain.
func TestPlainExecutor(t *testing.T) {
	h := endpoint(t, Config{Role: Harness})
	peer := bare(t, h)
	s, err := h.Open("s")
	if err != nil {
		t.Fatal(err)
	}
	if f := receiveFrame(t, peer, "s"); f.GetResume() == nil || f.GetResume().GetNextSeq() != 0 || f.GetAck() != noSegment {
		t.Errorf("the first frame is %v", f)
	}
	send(t, s, "hello")
	for f := receiveFrame(t, peer, "s"); ; f = receiveFrame(t, peer, "s") {
		if f.GetResume() == nil {
			if string(f.GetData().GetPayload()) != "hello" || f.GetData().GetSeq() != 0 {
				t.Errorf("the first message is %v", f)
			}
			break
		}
	}
	sendData(t, peer, "s", 0, "world")
	if err := s.WaitReliable(within(t)); !errors.Is(err, ErrPlainPeer) {
		t.Errorf("the peer is taken for one that acknowledges: %v", err)
	}
	if err := s.WaitAcknowledged(within(t)); !errors.Is(err, ErrPlainPeer) {
		t.Errorf("the peer is taken for one that acknowledges: %v", err)
	}
	expect(t, s, "world")
	_ = peer.Close(0, "")
	expectReset(t, s, ReasonCarrierLost, false)
}

// Reset waits until everything was sent, since a plain peer cannot acknowledge.
func TestPlainPeer_Reset_DeliversSent(t *testing.T) {
	x := endpoint(t, Config{ProbeTimeout: time.Millisecond, SilenceTimeout: 2 * patience})
	peer := bare(t, x)
	sendData(t, peer, "s", 0, "hello")
	p := accept(t, x)
	expect(t, p, "hello")
	if err := p.WaitReliable(within(t)); !errors.Is(err, ErrPlainPeer) {
		t.Fatalf("the peer is taken for one that acknowledges: %v", err)
	}
	const messages = 30 // more than the carrier buffers before the peer reads
	for range messages {
		send(t, p, "last words")
	}
	left := make(chan error, 1)
	go func() {
		err := p.WaitAcknowledged(within(t))
		p.Reset(ReasonClosed)
		left <- err
	}()
	for i := range messages {
		if f := receiveFrame(t, peer, "s"); f.GetData() == nil {
			t.Fatalf("instead of message %d of %d it sends %v", i+1, messages, f)
		}
	}
	if f := receiveFrame(t, peer, "s"); f.GetReset_().GetReason() != ReasonClosed {
		t.Errorf("after its messages it sends %v", f)
	}
	if err := <-left; !errors.Is(err, ErrPlainPeer) {
		t.Errorf("it waited and got %v", err)
	}
}

// A plain peer sends more than the queue holds; other streams are not affected.
func TestPlainPeer_Overflow_EndsStream(t *testing.T) {
	x := endpoint(t, Config{PlainQueueBytes: 10_000})
	peer := bare(t, x)
	sendData(t, peer, "other", 0, "hello")
	other := accept(t, x)
	for i := range 12 {
		sendData(t, peer, "s", uint32(i), strings.Repeat("x", 1000))
	}
	if f := receiveFrame(t, peer, "s"); f.GetReset_().GetReason() != ReasonReceiveOverflow {
		t.Errorf("the answer is %v", f)
	}
	expect(t, other, "hello")
}

// A peer that counts from 0 can acknowledge only after it has received something.
func TestPlainPeer_LateAck_BecomesReliable(t *testing.T) {
	x := endpoint(t, Config{})
	peer := bare(t, x)
	sendData(t, peer, "s", 0, "hello")
	p := accept(t, x)
	expect(t, p, "hello")
	send(t, p, "one")
	send(t, p, "two")
	receiveFrame(t, peer, "s")
	receiveFrame(t, peer, "s")
	sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Ack: 1, Body: &relayv1.RelayMessageFrame_Data{
		Data: &relayv1.RelayData{Seq: 1, SegmentCount: 2, Payload: []byte("in ")}}})
	sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Ack: 1, Body: &relayv1.RelayMessageFrame_Data{
		Data: &relayv1.RelayData{Seq: 2, SegmentIndex: 1, SegmentCount: 2, Payload: []byte("segments")}}})
	expect(t, p, "in segments")
	if err := p.WaitAcknowledged(within(t)); err != nil {
		t.Error(err)
	}
}

// A peer acknowledges what it was never sent.
func TestHarness_InvalidAcks_EndStream(t *testing.T) {
	for name, f := range map[string]*relayv1.RelayMessageFrame{
		"ack":         {Ack: 1},
		"far ack":     {Ack: 1 << 30},
		"bits":        {Ack: noSegment, AckBits: 1 << 5},
		"bits beyond": {Ack: 0, AckBits: 1},
	} {
		x := endpoint(t, Config{})
		peer := bare(t, x)
		sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Ack: noSegment, Body: &relayv1.RelayMessageFrame_Data{
			Data: &relayv1.RelayData{SegmentCount: 1, Payload: []byte("hello")}}})
		p := accept(t, x)
		send(t, p, "one")
		f.StreamId, f.Body = "s", &relayv1.RelayMessageFrame_AckFrame{AckFrame: &relayv1.RelayAck{}}
		expect(t, p, "hello")
		sendFrame(t, peer, f)
		if _, err := p.Receive(within(t)); err == nil || p.Err().(*ResetError).Reason != ReasonProtocolError {
			t.Errorf("%s: the stream ended with %v", name, err)
		}
	}
}
