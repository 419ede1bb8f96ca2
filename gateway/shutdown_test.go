package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// forever is longer than any test.
const forever = time.Duration(1 << 60)

// askSlowly requests a write that takes so long, and returns the id of the request.
func (cl *client) askSlowly(s *scriptedServer, processID string, writeTimes time.Duration) string {
	cl.t.Helper()
	s.mu.Lock()
	s.writeTimes[processID] = writeTimes
	s.mu.Unlock()
	return cl.ask("process/write", writeOf(processID, "x"))
}

// One request never completes.
func TestShutdown_RequestsInFlight_DelayIsBounded(t *testing.T) {
	halves := func(p *pipe, _ *Config) { p.halves = true }
	for name, test := range map[string]struct {
		change func(*pipe, *Config)
		waits  []time.Duration
		then   func(*client)
		want   time.Duration // how long the end takes, approximately
		left   int           // requests that get no response
	}{
		"websocket":            {func(*pipe, *Config) {}, []time.Duration{time.Second, forever}, func(*client) {}, answerTimeout, 1},
		"half-closed":          {halves, []time.Duration{0, 30 * time.Second, 80 * time.Second, 100 * time.Second}, func(*client) {}, 100 * time.Second, 0},
		"half-closed, stalled": {halves, []time.Duration{30 * time.Second, forever}, func(*client) {}, 30*time.Second + stalledAnswerTimeout, 1},
		"half-closed, then lost": {halves, []time.Duration{forever}, func(cl *client) {
			time.Sleep(5 * time.Second)
			cl.cut()
		}, 10 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScriptedServer(t)
				cl, _ := srv.attach("", test.change)
				var ids []string
				for i, wait := range test.waits {
					ids = append(ids, cl.askSlowly(s, fmt.Sprint(i), wait))
				}
				synctest.Wait()
				begun := time.Now()
				close(cl.pipe.finished)
				time.Sleep(test.want / 2) // keeps the waits of the test shorter than patience
				test.then(cl)
				if err := cl.ended(); err != nil {
					t.Errorf("Serve returned %v", err)
				}
				if took := time.Since(begun); took < test.want || took > test.want+2*stallCheckInterval {
					t.Errorf("it took %v, want %v", took, test.want)
				}
				if !s.finished {
					t.Error("the session was not closed")
				}
				for _, id := range ids[:len(ids)-test.left] {
					cl.reply(id)
				}
			})
		})
	}
}

// No output comes. The poll must not delay the end of the connection.
func TestShutdown_LongPoll_IsAnswered(t *testing.T) {
	for name, change := range map[string]func(*pipe, *Config){
		"a websocket":     func(*pipe, *Config) {},
		"standard output": func(p *pipe, _ *Config) { p.halves = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScriptedServer(t)
				s.last["said"] = 2
				cl, _ := srv.attach("", change)
				polls := map[string]string{
					cl.ask("process/read", map[string]any{"processId": "p", "waitMs": 3_600_000}):                   `"nextSeq":1,`,
					cl.ask("process/read", map[string]any{"processId": "said", "afterSeq": 2, "waitMs": 3_600_000}): `"nextSeq":3,`,
				}
				synctest.Wait()
				begun := time.Now()
				close(cl.pipe.finished)
				for id, part := range polls {
					if f := cl.reply(id); f.Error != nil || !strings.Contains(string(f.Result), part) {
						t.Errorf("a long poll: got %s, want %s", f.raw, part)
					}
				}
				if err := cl.ended(); err != nil {
					t.Errorf("Serve returned %v", err)
				}
				if took := time.Since(begun); took > stallCheckInterval {
					t.Errorf("it took %v", took)
				}
				if !s.finished {
					t.Error("the session was not closed")
				}
			})
		})
	}
}

// The condition of the wait is never met.
func TestShutdown_Wait_IsAnswered(t *testing.T) {
	cl, _ := newTestServer(t).attach("", func(p *pipe, _ *Config) { p.halves = true })
	cl.start("p", "exec sleep 1000")
	limited := cl.ask("process/wait", waitFor("p", "timeoutMs", 3_600_000))
	unlimited := cl.ask("process/wait", waitFor("p"))
	ahead := cl.ask("process/read", map[string]any{"processId": "p", "afterSeq": 99, "waitMs": 3_600_000})
	cl.must("environment/status", nil)
	close(cl.pipe.finished)
	for _, id := range []string{limited, unlimited} {
		if f := cl.reply(id); f.Error != nil || !strings.Contains(string(f.Result), `"timedOut":true`) {
			t.Errorf("a wait: got %s", f.raw)
		}
	}
	if f := cl.reply(ahead); f.Error != nil || !strings.Contains(string(f.Result), `"nextSeq":1,"exited":false`) {
		t.Errorf("a read ahead of the process: got %s", f.raw)
	}
	if err := cl.ended(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}
