package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// forever is a wait that no test waits for.
const forever = time.Duration(1 << 60)

// TestRequestsUnderWayDelayANormalEndOnlySoLong has one that never ends.
func TestRequestsUnderWayDelayANormalEndOnlySoLong(t *testing.T) {
	halves := func(p *pipe, _ *Config) { p.halves = true }
	for name, test := range map[string]struct {
		change func(*pipe, *Config)
		waits  []time.Duration
		then   func(*client)
		want   time.Duration // about how long the end takes
		left   int           // requests that get no answer
	}{
		"a websocket":           {func(*pipe, *Config) {}, []time.Duration{time.Second, forever}, func(*client) {}, answerTime, 1},
		"who reads on":          {halves, []time.Duration{0, 30 * time.Second, 80 * time.Second, 100 * time.Second}, func(*client) {}, 100 * time.Second, 0},
		"who reads on for ever": {halves, []time.Duration{30 * time.Second, forever}, func(*client) {}, 30*time.Second + listenerTime, 1},
		"who reads on and goes": {halves, []time.Duration{forever}, func(cl *client) {
			time.Sleep(5 * time.Second)
			cl.cut()
		}, 10 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, core := newScriptedCore(t)
				cl, _ := core.attach("", test.change)
				var ids []string
				for i, wait := range test.waits {
					ids = append(ids, cl.ask("process/read", map[string]any{"processId": fmt.Sprint(i), "waitMs": wait.Milliseconds()}))
				}
				synctest.Wait()
				begun := time.Now()
				close(cl.pipe.finished)
				time.Sleep(test.want / 2) // what the test waits for is less than its patience
				test.then(cl)
				if err := cl.ended(); err != nil {
					t.Errorf("Serve returned %v", err)
				}
				if took := time.Since(begun); took < test.want || took > test.want+2*listenerLook {
					t.Errorf("it took %v, want %v", took, test.want)
				}
				if !s.finished {
					t.Error("the session was not ended")
				}
				for _, id := range ids[:len(ids)-test.left] {
					cl.reply(id)
				}
			})
		})
	}
}
