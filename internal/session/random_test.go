package session_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
)

// One client's attachments are cut at random while several processes write.
func TestAttachment_CutAtRandom_LosesAndRepeatsNothing(t *testing.T) {
	const cycles, processes, size = 200, 4, 1 << 20
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{WhenDetached: session.WhenDetachedBlock, Grace: within(time.Hour)})
	var ids []string
	for i := range processes {
		ids = append(ids, fmt.Sprint("p", i))
		c.pattern(ids[i])
		c.start(ids[i], small(flood(size)))
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range cycles {
		for range random.IntN(5) {
			d, err := c.a.Next(f.ctx, 1+random.IntN(64<<10))
			if err != nil {
				t.Fatal(err)
			}
			c.check(d)
			if random.IntN(4) == 0 || allClosed(c, ids) {
				break // received but not acknowledged
			}
			c.acknowledge(d.Process.ID())
		}
		if allClosed(c, ids) {
			break
		}
		c.a.Lost()
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
		c.attach(session.AttachRequest{AfterSeq: c.cursors()})
	}
	for id := range c.seen {
		c.acknowledge(id)
	}
	c.takeAll(ids...)
	for _, id := range ids {
		if got := c.of(id); got.dropped != 0 || got.out.Offset() != size {
			t.Errorf("%s: received %d bytes, %d are missing", id, got.out.Offset(), got.dropped)
		}
	}
	c.a.Lost()
}

func allClosed(c *client, ids []string) bool {
	for _, id := range ids {
		if !c.of(id).closed {
			return false
		}
	}
	return true
}
