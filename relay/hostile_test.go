package relay

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// hostile returns an executor's table attached to the carrier of a hostile peer.
func hostile(t *testing.T, c Config) *table {
	t.Helper()
	c = c.withDefaults()
	table := newTable(c)
	table.attach(begin)
	return table
}

func deliver(t *testing.T, to *table, frame []byte) {
	t.Helper()
	if err := to.handleFrame(begin, frame); err != nil {
		t.Fatal(err)
	}
}

// Requests that arrive faster than replies are sent do not block the data of
// other streams.
func TestTable_RequestFlood_DataIsSent(t *testing.T) {
	table := hostile(t, Config{})
	for _, id := range []string{"flood", "other"} {
		deliver(t, table, dataFrame(id, noSegment, 0, 0, 0, 1, "hello"))
	}
	other := table.streams["other"]
	other.send.push(newSegment("other", []byte("data"), 0, 1))
	table.update(other)
	for i := range 100 {
		deliver(t, table, appendEmpty(nil, "flood", noSegment, 0, bodyHeartbeat))
		deliver(t, table, appendResume(nil, fmt.Sprint(i), noSegment, 0, 0))
		f, err := decode(table.next(begin, nil))
		if err != nil {
			t.Fatal(err)
		}
		if f.body == bodyData {
			return
		}
	}
	t.Error("a stream's data was not sent among the answers")
}

// Requests that arrive faster than replies are sent do not keep a stream with no
// data from acknowledging.
func TestTable_RequestFlood_AcksAreSent(t *testing.T) {
	table := hostile(t, Config{})
	deliver(t, table, dataFrame("other", noSegment, 0, 0, 0, 1, "hello"))
	for i := range 100 {
		deliver(t, table, appendResume(nil, fmt.Sprint(i), noSegment, 0, 0))
		deliver(t, table, appendResume(nil, fmt.Sprint(i, " again"), noSegment, 0, 0))
		f, err := decode(table.next(begin, nil))
		if err != nil {
			t.Fatal(err)
		}
		if string(f.stream) == "other" {
			return
		}
	}
	t.Error("a stream's acknowledgement was not sent among the answers")
}

// A peer begins too many streams, and refers to streams that do not exist.
func TestTable_StreamFlood_IsBounded(t *testing.T) {
	table := hostile(t, Config{Streams: 10})
	for i := range 20_000 {
		id := fmt.Sprint("stream ", i)
		deliver(t, table, dataFrame(id, noSegment, 0, 0, 0, 1, "hello"))
		deliver(t, table, appendResume(nil, id+" resumed", noSegment, 0, 0))
		deliver(t, table, appendEmpty(nil, id+" beating", 5, 0, bodyHeartbeat))
		deliver(t, table, appendReset(nil, id+" reset", 5, 0, "because"))
	}
	if len(table.streams) != 10 || table.count != 10 || len(table.replies.queue) != minReplies || len(table.replies.pending) != minReplies {
		t.Errorf("%d streams, %d counted, %d answers", len(table.streams), table.count, len(table.replies.queue))
	}
	for id := range table.streams {
		deliver(t, table, appendReset(nil, id, 0, 0, "because"))
	}
	if table.count != 10 {
		t.Errorf("%d streams that nobody has been told of are counted", table.count)
	}
	// As many ended streams whose end is not reported are tolerated, and no more.
	for i := range 20 {
		id := fmt.Sprint("more ", i)
		deliver(t, table, dataFrame(id, noSegment, 0, 0, 0, 1, "hello"))
		if _, there := table.streams[id]; there != (i < 10) {
			t.Errorf("stream %d beside 10 that have ended: %v", i, there)
		}
		deliver(t, table, appendReset(nil, id, 0, 0, "because"))
	}
	if table.count != 20 {
		t.Errorf("%d streams are counted", table.count)
	}
}

// More streams end than are remembered.
func TestTable_EndedStreams_AreBounded(t *testing.T) {
	var m endedStreams
	for i := range 10 * maxEndedStreams {
		m.add(fmt.Sprint(i%(3*maxEndedStreams)), "because")
		m.remove(fmt.Sprint(i / 2))
	}
	if len(m.reasons) > maxEndedStreams || len(m.order) > maxEndedStreams {
		t.Errorf("%d reasons and %d places", len(m.reasons), len(m.order))
	}
}

// A stream ends before its acknowledgement was sent.
func TestTable_ResetReplacesPendingAck(t *testing.T) {
	table := hostile(t, Config{})
	deliver(t, table, appendResume(nil, "s", noSegment, 0, 0))
	deliver(t, table, dataFrame("s", noSegment, 0, 0, 0, 1, "hello"))
	st := table.streams["s"]
	st.end(ReasonGoingAway, false)
	table.update(st)
	f, err := decode(table.next(begin, nil))
	if err != nil || f.body != bodyReset || string(f.reason) != ReasonGoingAway {
		t.Errorf("it sends %+v, %v", f, err)
	}
	if b := table.next(begin, nil); b != nil {
		t.Errorf("it sends %x too", b)
	}
}

// Frames have a small payload and much that is ignored: only the payload is kept, of a peer
// that acknowledges and of one that does not.
func TestTable_IgnoredFields_UseNoMemory(t *testing.T) {
	ignored := protowire.AppendBytes(protowire.AppendTag(nil, 100, protowire.BytesType), make([]byte, 100_000))
	for name, ack := range map[string]uint32{"reliable": noSegment, "plain": 0} {
		table := hostile(t, Config{})
		for _, seq := range []uint32{0, 1, 2, 5, 6} {
			deliver(t, table, append(dataFrame("s", ack, 0, seq, 0, 1, "hello"), ignored...))
		}
		receive := &table.streams["s"].receive
		kept := 0
		for _, m := range receive.queue {
			kept += cap(m.payload) + cap(m.buffer)
		}
		for _, m := range receive.held {
			kept += cap(m.payload) + cap(m.buffer)
		}
		if most := 5 * 2 * (len("hello") + messageOverhead); kept > most {
			t.Errorf("%s: %d bytes are kept of 5 frames, more than %d", name, kept, most)
		}
	}
}

// Announced segments never arrive, and retransmission of everything is requested
// repeatedly.
func TestTable_AnnouncedSegments_UseNoMemory(t *testing.T) {
	table := hostile(t, Config{})
	deliver(t, table, dataFrame("huge", noSegment, 0, 0, 0, 1<<32-1, "x"))
	if table.streams["huge"] != nil {
		t.Error("a message of 2^32-1 segments was begun")
	}
	deliver(t, table, dataFrame("long", noSegment, 0, 0, 0, DefaultMessageBytes, "x"))
	if held := cap(table.streams["long"].receive.partial); held > 16 {
		t.Errorf("%d bytes are kept for one that came", held)
	}
	st := table.streams["long"]
	for range DefaultWindowFrames {
		st.send.push(newSegment("long", make([]byte, 1000), 0, 1))
		table.update(st)
	}
	sent := 0
	for now := begin; now.Before(begin.Add(time.Second)); now = now.Add(time.Millisecond) {
		if err := table.handleFrame(now, appendResume(nil, "long", noSegment, 0, 5)); err != nil {
			t.Fatal(err)
		}
		for b := table.next(now, nil); b != nil; b = table.next(now, nil) {
			sent += len(b)
		}
	}
	if most := 110 * DefaultWindowFrames * 1100; sent > most {
		t.Errorf("%d bytes were sent for 1000 questions in a second, more than %d", sent, most)
	}
}
