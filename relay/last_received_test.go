package relay

import (
	"testing"
	"testing/synctest"
	"time"
)

// Heartbeats of an otherwise idle peer count as received; without them LastReceived does
// not advance.
func TestStream_LastReceived_FollowsSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 4 * time.Second
		harness, executor := endpoint(t, Config{Role: Harness, HeartbeatInterval: interval}), endpoint(t, Config{})
		cut := connect(t, harness, executor)
		stream := openReliable(t, harness)
		if err := stream.WaitReliable(within(t)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if silent := time.Since(stream.LastReceived()); silent > interval {
			t.Errorf("a peer that is there is silent for %v", silent)
		}
		cut()
		time.Sleep(10 * time.Second)
		if silent := time.Since(stream.LastReceived()); silent < 10*time.Second {
			t.Errorf("a peer that is away for 10s is silent for %v", silent)
		}
	})
}
