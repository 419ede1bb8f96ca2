package relay

import (
	"fmt"
	"testing"
	"time"
)

// hostile returns an executor's table that a hostile peer has a carrier to.
func hostile(t *testing.T, c Config) *table {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(c)
	table.attach(begin)
	return table
}

func tell(t *testing.T, to *table, frame []byte) {
	t.Helper()
	if err := to.hear(begin, frame); err != nil {
		t.Fatal(err)
	}
}

// TestFloodOfQuestions asks faster than answers are sent: others' data goes out.
func TestFloodOfQuestions(t *testing.T) {
	table := hostile(t, Config{})
	for _, id := range []string{"flood", "other"} {
		tell(t, table, dataFrame(id, none, 0, 0, 0, 1, "hello"))
	}
	other := table.lines["other"]
	other.push(newSegment("other", []byte("data"), 0, 1))
	table.arrange(other)
	for i := range 100 {
		tell(t, table, appendEmpty(nil, "flood", none, 0, bodyHeartbeat))
		tell(t, table, appendResume(nil, fmt.Sprint(i), none, 0, 0))
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

// TestFloodOfQuestionsAndAcknowledgements asks faster than answers are sent: a
// stream that has nothing to say still acknowledges what it receives.
func TestFloodOfQuestionsAndAcknowledgements(t *testing.T) {
	table := hostile(t, Config{})
	tell(t, table, dataFrame("other", none, 0, 0, 0, 1, "hello"))
	for i := range 100 {
		tell(t, table, appendResume(nil, fmt.Sprint(i), none, 0, 0))
		tell(t, table, appendResume(nil, fmt.Sprint(i, " again"), none, 0, 0))
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

// TestFloodOfStreams begins streams, and speaks of ones that there are not.
func TestFloodOfStreams(t *testing.T) {
	table := hostile(t, Config{Streams: 10})
	for i := range 20_000 {
		id := fmt.Sprint("stream ", i)
		tell(t, table, dataFrame(id, none, 0, 0, 0, 1, "hello"))
		tell(t, table, appendResume(nil, id+" resumed", none, 0, 0))
		tell(t, table, appendEmpty(nil, id+" beating", 5, 0, bodyHeartbeat))
		tell(t, table, appendReset(nil, id+" reset", 5, 0, "because"))
	}
	if len(table.lines) != 10 || table.count != 10 || len(table.answers.queue) != leastAnswers || len(table.answers.waiting) != leastAnswers {
		t.Errorf("%d streams, %d counted, %d answers", len(table.lines), table.count, len(table.answers.queue))
	}
	for id := range table.lines {
		tell(t, table, appendReset(nil, id, 0, 0, "because"))
	}
	if table.count != 10 {
		t.Errorf("%d streams that nobody has been told of are counted", table.count)
	}
	// As many again find a place, and no more, while nobody has been told of those
	// that ended.
	for i := range 20 {
		id := fmt.Sprint("more ", i)
		tell(t, table, dataFrame(id, none, 0, 0, 0, 1, "hello"))
		if _, there := table.lines[id]; there != (i < 10) {
			t.Errorf("stream %d beside 10 that have ended: %v", i, there)
		}
		tell(t, table, appendReset(nil, id, 0, 0, "because"))
	}
	if table.count != 20 {
		t.Errorf("%d streams are counted", table.count)
	}
}

// TestMemoryOfEndedStreams ends more than are remembered.
func TestMemoryOfEndedStreams(t *testing.T) {
	var m memory
	for i := range 10 * rememberedStreams {
		m.remember(fmt.Sprint(i%(3*rememberedStreams)), "because")
		m.forget(fmt.Sprint(i / 2))
	}
	if len(m.reasons) > rememberedStreams || len(m.order) > rememberedStreams {
		t.Errorf("%d reasons and %d places", len(m.reasons), len(m.order))
	}
}

// TestResetReplacesAnswer ends a stream before its harness was answered.
func TestResetReplacesAnswer(t *testing.T) {
	table := hostile(t, Config{})
	tell(t, table, appendResume(nil, "s", none, 0, 0))
	tell(t, table, dataFrame("s", none, 0, 0, 0, 1, "hello"))
	one := table.lines["s"]
	one.end(ReasonGoingAway, false)
	table.arrange(one)
	f, err := decode(table.next(begin, nil))
	if err != nil || f.body != bodyReset || string(f.reason) != ReasonGoingAway {
		t.Errorf("it sends %+v, %v", f, err)
	}
	if b := table.next(begin, nil); b != nil {
		t.Errorf("it sends %x too", b)
	}
}

// TestAnnouncedLengths announces what never comes, and asks for everything again
// and again.
func TestAnnouncedLengths(t *testing.T) {
	table := hostile(t, Config{})
	tell(t, table, dataFrame("huge", none, 0, 0, 0, 1<<32-1, "x"))
	if table.lines["huge"] != nil {
		t.Error("a message of 2^32-1 segments was begun")
	}
	tell(t, table, dataFrame("long", none, 0, 0, 0, DefaultMessageBytes, "x"))
	if held := cap(table.lines["long"].receive.partial); held > 16 {
		t.Errorf("%d bytes are kept for one that came", held)
	}
	one := table.lines["long"]
	for range DefaultWindowFrames {
		one.push(newSegment("long", make([]byte, 1000), 0, 1))
		table.arrange(one)
	}
	sent := 0
	for now := begin; now.Before(begin.Add(time.Second)); now = now.Add(time.Millisecond) {
		if err := table.hear(now, appendResume(nil, "long", none, 0, 5)); err != nil {
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
