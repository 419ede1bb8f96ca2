package relay

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// referenceParty is a peer that neither acknowledges nor retransmits and accepts
// messages in arrival order, whatever their numbers. Its streams end with its
// carrier.
type referenceParty struct {
	role     Role
	messages int // per stream and direction
	most     int // maximum message size
	streams  int
	talks    map[string]*referenceTalk
	order    []string
	frames   [][]byte
	cut      bool // a carrier was lost, and its streams with it
	err      error
}

type referenceTalk struct{ sent, received int }

func newReferenceParty(role Role, streams, messages, most int) *referenceParty {
	r := &referenceParty{role: role, messages: messages, most: most, streams: streams, talks: map[string]*referenceTalk{}}
	if role == Harness {
		for i := range streams {
			id := string(rune('a' + i))
			r.begin(id)
			r.emit(&relayv1.RelayMessageFrame{StreamId: id, Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}})
		}
	}
	return r
}

func (r *referenceParty) begin(id string) *referenceTalk {
	r.talks[id] = &referenceTalk{}
	r.order = append(r.order, id)
	return r.talks[id]
}

func (r *referenceParty) emit(f *relayv1.RelayMessageFrame) {
	f.Version = 1
	b, err := proto.Marshal(f)
	if err != nil {
		panic(err)
	}
	r.frames = append(r.frames, b)
}

func (r *referenceParty) attach(time.Time) {}

func (r *referenceParty) detach(time.Time) {
	r.cut = true
	clear(r.talks)
	r.frames, r.order = nil, nil
}

func (r *referenceParty) receive(_ time.Time, b []byte) {
	var f relayv1.RelayMessageFrame
	if err := proto.Unmarshal(b, &f); err != nil {
		r.err = err
		return
	}
	one := r.talks[f.GetStreamId()]
	data := f.GetData()
	switch {
	case f.GetReset_() != nil:
		delete(r.talks, f.GetStreamId())
	case data == nil, one == nil && r.role == Harness:
	case data.GetSegmentCount() != 1 || data.GetSegmentIndex() != 0:
		r.err = fmt.Errorf("the reference %v was sent a segmented message", r.role)
	default:
		if one == nil {
			one = r.begin(f.GetStreamId())
		}
		if want := text(f.GetStreamId(), 1-r.role, one.received, r.most); !bytes.Equal(data.GetPayload(), want) {
			r.err = fmt.Errorf("the reference %v got %.30q on stream %s, want %.30q", r.role, data.GetPayload(), f.GetStreamId(), want)
		}
		one.received++
	}
}

func (r *referenceParty) next(time.Time) []byte {
	if len(r.frames) == 0 {
		return nil
	}
	b := r.frames[0]
	r.frames = r.frames[1:]
	return b
}

func (r *referenceParty) deadline() time.Time  { return time.Time{} }
func (r *referenceParty) fireTimers(time.Time) {}

// act sends a message on each stream.
func (r *referenceParty) act(time.Time) {
	if r.cut && r.role == Harness {
		return
	}
	for _, id := range r.order {
		if one := r.talks[id]; one != nil && one.sent < r.messages {
			r.emit(&relayv1.RelayMessageFrame{StreamId: id, Body: &relayv1.RelayMessageFrame_Data{Data: &relayv1.RelayData{
				Seq: uint32(one.sent), SegmentCount: 1, Payload: text(id, r.role, one.sent, r.most)}}})
			one.sent++
		}
	}
}

func (r *referenceParty) finished() bool {
	if r.cut {
		return true
	}
	for _, one := range r.talks {
		if one.sent < r.messages || one.received < r.messages {
			return false
		}
	}
	return len(r.order) == r.streams
}

func (r *referenceParty) lost() bool { return r.cut }

func (r *referenceParty) check() error { return r.err }
