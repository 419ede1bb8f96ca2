package gateway

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/rpcerror"
)

// course returns what was read since the beginning: the ids of answers, and the
// seqs of events.
func (cl *client) course() (course []string) {
	for _, f := range cl.all() {
		if f.Method == "" {
			course = append(course, "answer "+string(f.ID))
		} else {
			course = append(course, fmt.Sprint("event ", f.Params.Seq))
		}
	}
	return course
}

// expectCourse checks what was read since the session was attached.
func (cl *client) expectCourse(want ...string) {
	cl.t.Helper()
	synctest.Wait()
	if got := cl.course()[1:]; !slices.Equal(got, want) {
		cl.t.Errorf("the client reads %q, want %q", got, want)
	}
}

// TestAHoldThatEndsKeepsTheOrderOfEvents ends holds just when the feed is about
// to say what precedes the held event.
func TestAHoldThatEndsKeepsTheOrderOfEvents(t *testing.T) {
	s, core := newScriptedCore(t)
	c, cl := core.serveHere()
	cl.initialize("")
	for i := range 200 {
		id := fmt.Sprint("p", i)
		gate := c.table.addGate(id, true, gateEndLimit)
		c.out.sending.Lock() // somebody speaks
		s.sendEvents(id, outputEvent(1, 1), exitedEvent(2))
		for ready := false; !ready; runtime.Gosched() { // until the feed waits for its turn
			c.table.mu.Lock()
			ready = c.table.records[id].received == 1
			c.table.mu.Unlock()
		}
		time.Sleep(10 * time.Microsecond) // it is no error if it does not yet
		c.out.sending.Unlock()
		c.delivery.release(gate)
		_, output := cl.wait("output", func(f frame) bool { return f.Params.ProcessID == id && f.Params.Seq == 1 })
		_, exit := cl.wait("exit", func(f frame) bool { return f.Params.ProcessID == id && f.Params.Seq == 2 })
		if exit < output {
			t.Fatalf("%d: the exit precedes the output", i)
		}
	}
}

// TestTheEndOfTheFeedIsSaidAfterWhatPrecedesIt has a client not read while another
// goroutine than that of the feed says what was held back.
func TestTheEndOfTheFeedIsSaidAfterWhatPrecedesIt(t *testing.T) {
	draining, err := status.New(codes.Unavailable, "draining").WithDetails(&errdetails.ErrorInfo{Domain: rpcerror.Domain, Reason: "DRAINING"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		c, cl := core.serveHere()
		cl.initialize("")
		gate := c.table.addGate("p", false, time.Hour)
		s.say("p", 1)
		synctest.Wait()
		read := make(chan struct{}) // closed when the client reads
		cl.pipe.fault = func(call string, _ []byte) bool {
			if call == "Send" {
				<-read
			}
			return false
		}
		var releasing sync.WaitGroup
		releasing.Go(func() { c.delivery.release(gate) })
		synctest.Wait()
		s.sendEvents("p", exitedEvent(2), closedEvent(3))
		s.end <- draining.Err()
		synctest.Wait()
		if c.ctx.Err() != nil {
			t.Error("the connection has ended before the client was told of the end")
		}
		close(read)
		releasing.Wait()
		cl.expectCourse("event 1", "event 2", "event 3")
		if c.ctx.Err() == nil {
			t.Error("the connection has not ended")
		}
	})
}

// TestAnAnswerThatIsThereIsWaitedFor has a request that was carried out be slow to
// be answered, also when it was slow before.
func TestAnAnswerThatIsThereIsWaitedFor(t *testing.T) {
	for name, before := range map[string]time.Duration{"quick": 0, "slow": gateOutputLimit - 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, core := newScriptedCore(t)
				c, cl := core.serveHere()
				cl.initialize("")
				r := &request{connection: c.connection}
				r.gateForSignal("p")
				s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
				time.Sleep(before)
				c.table.unlimit(r.gates)
				time.Sleep(time.Hour)
				cl.expectCourse()
				for _, gate := range r.gates {
					c.delivery.release(gate)
				}
				cl.expectCourse("event 1", "event 2")
			})
		})
	}
}

// TestWritingWithoutAPauseDelaysNoEcho has always a write in flight: the echo of
// each follows its answer.
func TestWritingWithoutAPauseDelaysNoEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		written := make(chan struct{})
		s.write = func() { <-written }
		cl, _ := core.attach("", func(p *pipe, _ *Config) {
			p.fault = func(call string, _ []byte) bool {
				if call == "Send" {
					time.Sleep(time.Nanosecond) // the next write begins before the answer is said
				}
				return false
			}
		})
		begun := time.Now()
		cl.ask("process/write", writeOf("p", "x"))
		synctest.Wait()
		s.say("p", 1)
		cl.expectCourse()
		want := []string{}
		for n := range uint64(5) {
			cl.ask("process/write", writeOf("p", "x"))
			written <- struct{}{} // the one before
			want = append(want, fmt.Sprint("answer ", n+2), fmt.Sprint("event ", n+1))
			time.Sleep(time.Microsecond)
			cl.expectCourse(want...)
			s.say("p", n+2)
			cl.expectCourse(want...)
		}
		if took := time.Since(begun); took >= gateOutputLimit {
			t.Errorf("it took %v", took)
		}
		time.Sleep(gateOutputLimit - time.Microsecond)
		cl.expectCourse(want...)
		time.Sleep(2 * time.Microsecond) // the last one waits for room
		cl.expectCourse(append(want, "event 6")...)
		s.say("p", 7)
		time.Sleep(time.Microsecond)
		cl.expectCourse(append(want, "event 6", "event 7")...)
		close(written)
		time.Sleep(time.Microsecond)
		cl.expectCourse(append(want, "event 6", "event 7", "answer 7")...)
	})
}

// TestASignalIsAnsweredBeforeWhatItCauses has the process speak and end while it
// is being signalled, for less and for more time than is waited.
func TestASignalIsAnsweredBeforeWhatItCauses(t *testing.T) {
	for method, params := range map[string]map[string]any{
		"process/signal":    {"processId": "p", "signal": "interrupt"},
		"process/terminate": {"processId": "p"},
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, core := newScriptedCore(t)
				s.signal = func() {
					s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
					time.Sleep(gateOutputLimit - 1)
				}
				cl, _ := core.attach("")
				cl.ask(method, params)
				cl.expectCourse()
				time.Sleep(gateOutputLimit - 1)
				cl.expectCourse("answer 2", "event 1", "event 2")

				s.signal = func() {
					s.sendEvents("p", outputEvent(3, 1), exitedEvent(4))
					time.Sleep(time.Hour)
				}
				cl.ask(method, params)
				time.Sleep(gateOutputLimit)
				cl.expectCourse("answer 2", "event 1", "event 2", "event 3")
				time.Sleep(gateEndLimit)
				cl.expectCourse("answer 2", "event 1", "event 2", "event 3", "event 4")
				time.Sleep(time.Hour)
				cl.expectCourse("answer 2", "event 1", "event 2", "event 3", "event 4", "answer 3")
			})
		})
	}
}
