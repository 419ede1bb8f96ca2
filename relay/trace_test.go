package relay

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/internal/tracecontext"
)

// expectTraced expects a message and its trace context.
func expectTraced(t *testing.T, s *Stream, want string, trace tracecontext.Context) {
	t.Helper()
	got, received, err := s.ReceiveTraced(within(t))
	if err != nil || string(got) != want || received != trace {
		t.Errorf("got %.20q of trace %+v, %v; want %.20q of %+v", got, received, err, want, trace)
	}
}

// Each message has its own trace context, also one in several segments, one that is sent
// again by another carrier, and one that follows.
func TestStream_TracedMessage_CarriesItsContext(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: 10}), endpoint(t, Config{SegmentBytes: 10})
	cut := connect(t, h, x)
	s := openReliable(t, h)
	p := acceptPeer(t, s, x)
	cut()
	long := strings.Repeat("long ", 20)
	other := tracecontext.Parse("00-"+strings.Repeat("ab", 16)+"-"+strings.Repeat("cd", 8)+"-00", "")
	messages := []struct {
		text  string
		trace tracecontext.Context
	}{{"short", someTrace}, {"none", tracecontext.Context{}}, {long, other}, {long, tracecontext.Context{}}, {"last", someTrace}}
	for _, m := range messages {
		if err := s.SendTraced(within(t), []byte(m.text), m.trace); err != nil {
			t.Fatal(err)
		}
	}
	connect(t, h, x)
	for _, m := range messages {
		expectTraced(t, p, m.text, m.trace)
	}
	if err := p.SendTraced(within(t), []byte("answer"), other); err != nil {
		t.Fatal(err)
	}
	expectTraced(t, s, "answer", other)
}

// The reference acknowledges nothing, and has the context in the first frame of a request.
// A malformed one is ignored. It counts as memory of the queue.
func TestStream_TracedMessage_OfReference(t *testing.T) {
	x := endpoint(t, Config{})
	peer := bare(t, x)
	traced := func(seq uint32, payload, parent, state string) {
		sendFrame(t, peer, &relayv1.RelayMessageFrame{StreamId: "s", Traceparent: proto.String(parent), Tracestate: proto.String(state),
			Body: &relayv1.RelayMessageFrame_Data{Data: &relayv1.RelayData{Seq: seq, SegmentCount: 1, Payload: []byte(payload)}}})
	}
	traced(0, "one", someTrace.Parent(), "a=1")
	p := accept(t, x)
	expectTraced(t, p, "one", someTrace)
	traced(1, "two", "00-none", "a=1")
	expectTraced(t, p, "two", tracecontext.Context{})
	traced(2, "three", someTrace.Parent(), strings.Repeat("x", 1<<10))
	expectTraced(t, p, "three", tracecontext.Parse(someTrace.Parent(), ""))
	sendData(t, peer, "s", 3, "four")
	expectTraced(t, p, "four", tracecontext.Context{})

	if err := p.SendTraced(within(t), []byte("answer"), someTrace); err != nil {
		t.Fatal(err)
	}
	if f := receiveFrame(t, peer, "s"); f.GetTraceparent() != someTrace.Parent() || f.GetTracestate() != "a=1" || string(f.GetData().GetPayload()) != "answer" {
		t.Errorf("the answer is %v", f)
	}
	const queued = len("x") + 55 + len("a=1") + messageOverhead
	traced(4, "x", someTrace.Parent(), "a=1")
	eventually(t, p, func(one *streamState) bool { return len(one.receive.queue) == 1 })
	if got := p.state.receive.queuedBytes; got != queued {
		t.Errorf("the queue has %d bytes, want %d", got, queued)
	}
	expectTraced(t, p, "x", someTrace)
	if got := p.state.receive.queuedBytes; got != 0 {
		t.Errorf("an empty queue has %d bytes", got)
	}
}
