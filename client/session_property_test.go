package client

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// modelServer is a server as far as a feed can tell: what each process said,
// what of it was acknowledged, and how far the stream is that is open.
type modelServer struct {
	said         map[string]uint64
	closed       map[string]bool
	acknowledged map[string]uint64
	sent         map[string]uint64
}

// attach opens a stream: what was acknowledged is behind it, and what the client
// has counts as that.
func (m *modelServer) attach(t *rapid.T, cursors map[string]uint64) {
	m.sent = map[string]uint64{}
	for id := range m.said {
		m.acknowledge(t, id, cursors[id])
		m.sent[id] = m.acknowledged[id]
	}
}

func (m *modelServer) acknowledge(t *rapid.T, id string, seq uint64) {
	if seq > m.said[id] {
		t.Fatalf("seq %d of %s was acknowledged, it said %d", seq, id, m.said[id])
	}
	m.acknowledged[id] = max(m.acknowledged[id], seq)
}

// next is the next message about a process, of up to n events.
func (m *modelServer) next(id string, n int) (events []*execwirev1.ProcessEvent) {
	for ; n > 0 && m.sent[id] < m.said[id]; n-- {
		m.sent[id]++
		seq := m.sent[id]
		if m.closed[id] && seq == m.said[id] {
			events = append(events, closed(seq))
		} else {
			events = append(events, stdout(seq, seq-1, "x"))
		}
	}
	return events
}

// However often streams are cut and whatever is acknowledged when, the caller
// gets every event once and in order, and what it did not acknowledge is never
// lost to a client that begins anew with its cursors.
func TestFeedTellsEverythingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelServer{said: map[string]uint64{}, closed: map[string]bool{}, acknowledged: map[string]uint64{}}
		ids := []string{"a", "b", "c"}
		f := newSessionFeed(nil)
		got, taken := map[string]uint64{}, map[string]uint64{}
		m.attach(t, nil)
		f.resume(8, 4)
		anyID := rapid.SampledFrom(ids)
		t.Repeat(map[string]func(*rapid.T){
			"speak": func(t *rapid.T) {
				if id := anyID.Draw(t, "id"); !m.closed[id] {
					m.said[id] += uint64(rapid.IntRange(1, 5).Draw(t, "events"))
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
				for _, r := range f.acknowledge(rapid.Bool().Draw(t, "all")) {
					id, seq := r.GetAcknowledge().GetProcessId(), r.GetAcknowledge().GetSeq()
					if seq > taken[id] {
						t.Fatalf("seq %d of %s was acknowledged, %d was taken", seq, id, taken[id])
					}
					m.acknowledge(t, id, seq)
				}
			},
			"cut": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "lose acknowledgements") {
					_ = f.acknowledge(true)
				}
				m.attach(t, f.attachCursors())
				f.resume(8, 4)
			},
			"begin anew": func(t *rapid.T) {
				cursors := f.cursors()
				f = newSessionFeed(cursors)
				got = maps.Clone(taken)
				m.attach(t, cursors)
				f.resume(8, 4)
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

// drainFeed sends and takes what is left, and wants all that was said.
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
	for _, id := range slices.Sorted(maps.Keys(m.said)) {
		if got[id] != m.said[id] {
			t.Fatalf("%s said %d events, %d came", id, m.said[id], got[id])
		}
	}
}
