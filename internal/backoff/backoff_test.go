package backoff_test

import (
	"context"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestWaitsDoubleUpToTheMost(t *testing.T) {
	b := backoff.Backoff{First: time.Second, Most: 30 * time.Second}
	for round := range 100 {
		for _, most := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			most *= time.Second
			if wait := b.Next(0); wait < most/2 || wait > most {
				t.Fatalf("round %d: %v, want %v to %v", round, wait, most/2, most)
			}
		}
		if wait := b.Next(time.Minute); wait != time.Minute {
			t.Fatalf("a wish for a minute became %v", wait)
		}
		b.Reset()
	}
}

func TestTheZeroValueHasTheDefaults(t *testing.T) {
	var b backoff.Backoff
	if wait := b.Next(0); wait < backoff.DefaultFirst/2 || wait > backoff.DefaultFirst {
		t.Errorf("the first wait is %v", wait)
	}
	for range 10 {
		if wait := b.Next(0); wait > backoff.DefaultMost {
			t.Errorf("a wait is %v", wait)
		}
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	b := backoff.Backoff{First: time.Nanosecond, Most: time.Nanosecond}
	if !b.Wait(ctx, 0) {
		t.Error("a wait was cut short")
	}
	cancel(nil)
	if b.Wait(ctx, time.Hour) {
		t.Error("a wait did not end with its context")
	}
}
