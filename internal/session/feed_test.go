package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
)

// A client can acknowledge output without reading it. The feed forgets a process whose end
// was acknowledged.
func TestFeed_RemovedProcess_LeavesNothing(t *testing.T) {
	f := newFeed(nil)
	for i := range 100 {
		log := eventlog.New(eventlog.Limits{})
		w := log.Writer(eventlog.Stdout)
		w.Commit(copy(w.Buffer(), "x"), time.Now())
		owner, err := log.OwnAcknowledged()
		if err != nil {
			t.Fatal(err)
		}
		f.add(&Process{id: fmt.Sprint(i)}, owner).remove(false)
	}
	if n := f.queue.Len(); n != 0 || len(f.items) != 0 {
		t.Errorf("the queue has %d entries, the feed %d processes", n, len(f.items))
	}
}

// The cursors of one attach can have megabytes.
func TestAttach_KeepsNoCursors(t *testing.T) {
	r := NewRegistry(nil, Config{})
	a, err := r.Attach(t.Context(), "tester", AttachRequest{AfterSeq: map[string]uint64{"p": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if a.holder.afterSeq != nil {
		t.Error("an attachment keeps the cursors of its request")
	}
	a.Lost()
	r.goroutines.Wait()
}
