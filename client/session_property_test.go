package client

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// modelServer is a server as seen by a feed: the events of each process, the
// acknowledged ones, and the position of the open stream.
type modelServer struct {
	written      map[string]uint64
	closed       map[string]bool
	acknowledged map[string]uint64
	sent         map[string]uint64
}

// attach opens a stream after the acknowledged events and the cursors of the client.
func (m *modelServer) attach(t *rapid.T, cursors map[string]uint64) {
	m.sent = map[string]uint64{}
	for id := range m.written {
		m.acknowledge(t, id, cursors[id])
		m.sent[id] = m.acknowledged[id]
	}
}

func (m *modelServer) acknowledge(t *rapid.T, id string, seq uint64) {
	if seq > m.written[id] {
		t.Fatalf("seq %d of %s was acknowledged, %d were written", seq, id, m.written[id])
	}
	m.acknowledged[id] = max(m.acknowledged[id], seq)
}

// next returns the next message of a process, of up to n events.
func (m *modelServer) next(id string, n int) (events []*execwirev1.ProcessEvent) {
	for ; n > 0 && m.sent[id] < m.written[id]; n-- {
		m.sent[id]++
		seq := m.sent[id]
		if m.closed[id] && seq == m.written[id] {
			events = append(events, closed(seq))
		} else {
			events = append(events, stdout(seq, seq-1, "x"))
		}
	}
	return events
}

// Wherever streams are cut and whatever is acknowledged when, the caller gets every
// event once and in order, and a client that starts over with its cursors gets every
// unacknowledged event.
func TestSessionFeed_DeliversExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelServer{written: map[string]uint64{}, closed: map[string]bool{}, acknowledged: map[string]uint64{}}
		ids := []string{"a", "b", "c"}
		f := newSessionFeed(nil)
		got, taken := map[string]uint64{}, map[string]uint64{}
		m.attach(t, nil)
		f.acks.resume(8, 4)
		anyID := rapid.SampledFrom(ids)
		t.Repeat(map[string]func(*rapid.T){
			"speak": func(t *rapid.T) {
				if id := anyID.Draw(t, "id"); !m.closed[id] {
					m.written[id] += uint64(rapid.IntRange(1, 5).Draw(t, "events"))
					m.closed[id] = rapid.IntRange(0, 9).Draw(t, "close") == 0
				}
			},
			"send": func(t *rapid.T) {
				id := anyID.Draw(t, "id")
				if events := m.next(id, rapid.IntRange(1, 4).Draw(t, "events")); events != nil {
					if err := f.add(id, events); err != nil {
						t.Fatal(err)
					}
				}
			},
			"take": func(t *rapid.T) {
				events, ok, err := f.take()
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events.Events {
					if got[events.ProcessID]++; e.GetSeq() != got[events.ProcessID] {
						t.Fatalf("seq %d of %s came after %d", e.GetSeq(), events.ProcessID, got[events.ProcessID]-1)
					}
				}
				if ok && len(events.Events) == 0 {
					t.Fatal("a message without events")
				}
			},
			"acknowledge": func(t *rapid.T) {
				id := anyID.Draw(t, "id")
				taken[id] = max(taken[id], uint64(rapid.IntRange(0, int(got[id])).Draw(t, "seq")))
				f.taken(id, taken[id])
			},
			"tell": func(t *rapid.T) {
				for id, seq := range f.acks.pending() {
					if seq > taken[id] {
						t.Fatalf("seq %d of %s was acknowledged, %d was taken", seq, id, taken[id])
					}
					m.acknowledge(t, id, seq)
				}
			},
			"cut": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "lose acknowledgements") {
					_ = f.acks.pending()
				}
				m.attach(t, f.attachCursors())
				f.acks.resume(8, 4)
			},
			"begin anew": func(t *rapid.T) {
				cursors := f.cursors()
				f = newSessionFeed(cursors)
				got = maps.Clone(taken)
				m.attach(t, cursors)
				f.acks.resume(8, 4)
			},
			"": func(t *rapid.T) {
				for id, seq := range f.cursors() {
					if seq != taken[id] {
						t.Fatalf("the cursor of %s is %d, %d was taken", id, seq, taken[id])
					}
				}
			},
		})
		drainFeed(t, m, f, ids, got)
	})
}

// drainFeed delivers and consumes the rest, and requires every event.
func drainFeed(t *rapid.T, m *modelServer, f *sessionFeed, ids []string, got map[string]uint64) {
	for _, id := range ids {
		for events := m.next(id, 3); events != nil; events = m.next(id, 3) {
			if err := f.add(id, events); err != nil {
				t.Fatal(err)
			}
		}
	}
	for events, ok, err := f.take(); ok; events, ok, err = f.take() {
		if err != nil {
			t.Fatal(err)
		}
		got[events.ProcessID] += uint64(len(events.Events))
	}
	for _, id := range slices.Sorted(maps.Keys(m.written)) {
		if got[id] != m.written[id] {
			t.Fatalf("%s: %d events were written, %d came", id, m.written[id], got[id])
		}
	}
}
