package backoff_test

import (
	"context"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestNext_DoublesUpToMax(t *testing.T) {
	b := backoff.Backoff{Min: time.Second, Max: 30 * time.Second}
	for round := range 100 {
		for _, limit := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			limit *= time.Second
			if wait := b.Next(0); wait < limit/2 || wait > limit {
				t.Fatalf("round %d: %v, want %v to %v", round, wait, limit/2, limit)
			}
		}
		if wait := b.Next(time.Minute); wait != time.Minute {
			t.Fatalf("atLeast of a minute gave %v", wait)
		}
		b.Reset()
	}
}

func TestNext_ZeroValue_HasDefaults(t *testing.T) {
	var b backoff.Backoff
	if wait := b.Next(0); wait < backoff.DefaultMin/2 || wait > backoff.DefaultMin {
		t.Errorf("the first wait is %v", wait)
	}
	for range 10 {
		if wait := b.Next(0); wait > backoff.DefaultMax {
			t.Errorf("a wait is %v", wait)
		}
	}
}

func TestWait_ContextEnds_Returns(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	b := backoff.Backoff{Min: time.Nanosecond, Max: time.Nanosecond}
	if !b.Wait(ctx, 0) {
		t.Error("a wait was cut short")
	}
	cancel(nil)
	if b.Wait(ctx, time.Hour) {
		t.Error("a wait did not end with its context")
	}
}
