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

	"github.com/execwire/execwire/internal/errorinfo"
)

// messageOrder returns the messages that were read: the ids of responses, and the
// seqs of events.
func (cl *client) messageOrder() (order []string) {
	for _, f := range cl.all() {
		if f.Method == "" {
			order = append(order, "response "+string(f.ID))
		} else {
			order = append(order, fmt.Sprint("event ", f.Params.Seq))
		}
	}
	return order
}

// expectOrder checks the messages that were read since the session was attached.
func (cl *client) expectOrder(want ...string) {
	cl.t.Helper()
	synctest.Wait()
	if got := cl.messageOrder()[1:]; !slices.Equal(got, want) {
		cl.t.Errorf("the client received %q, want %q", got, want)
	}
}

// Each gate opens just when the feed is about to send an event that precedes the
// gated one.
func TestEventGate_Opened_KeepsOrder(t *testing.T) {
	s, srv := newScriptedServer(t)
	c, cl := srv.serveHere()
	cl.initialize("")
	for i := range 200 {
		id := fmt.Sprint("p", i)
		gate := c.table.addGate(id, true, gateEndLimit)
		c.out.sending.Lock() // another message is being sent
		s.sendEvents(id, outputEvent(1, 1), exitedEvent(2))
		for ready := false; !ready; runtime.Gosched() { // until the feed waits for the lock
			c.table.mu.Lock()
			ready = c.table.records[id].received == 1
			c.table.mu.Unlock()
		}
		time.Sleep(10 * time.Microsecond) // if the feed does not wait yet, that is no error
		c.out.sending.Unlock()
		c.delivery.release(gate)
		_, output := cl.wait("output", func(f frame) bool { return f.Params.ProcessID == id && f.Params.Seq == 1 })
		_, exit := cl.wait("exit", func(f frame) bool { return f.Params.ProcessID == id && f.Params.Seq == 2 })
		if exit < output {
			t.Fatalf("%d: the exit precedes the output", i)
		}
	}
}

// The client does not read while another goroutine sends the gated events.
func TestFeedEnd_FollowsGatedEvents(t *testing.T) {
	draining, err := status.New(codes.Unavailable, "draining").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: "DRAINING"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		c, cl := srv.serveHere()
		cl.initialize("")
		gate := c.table.addGate("p", false, time.Hour)
		s.sendOutput("p", 1)
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
			t.Error("the connection ended before the client received the last events")
		}
		close(read)
		releasing.Wait()
		cl.expectOrder("event 1", "event 2", "event 3")
		if c.ctx.Err() == nil {
			t.Error("the connection has not ended")
		}
	})
}

// The response of a completed request is sent late, also when the request was
// slow.
func TestEventGate_ResponseReady_WaitsWithoutLimit(t *testing.T) {
	for name, before := range map[string]time.Duration{"quick": 0, "slow": gateOutputLimit - 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScriptedServer(t)
				c, cl := srv.serveHere()
				cl.initialize("")
				r := &request{connection: c.connection}
				r.gateForSignal("p")
				s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
				time.Sleep(before)
				c.table.unlimit(r.gates)
				time.Sleep(time.Hour)
				cl.expectOrder()
				for _, gate := range r.gates {
					c.delivery.release(gate)
				}
				cl.expectOrder("event 1", "event 2")
			})
		})
	}
}

// A write is always in flight. Each echo follows the response to its write.
func TestEventGate_ContinuousWrites_DelayNoEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		written := make(chan struct{})
		s.write = func() { <-written }
		cl, _ := srv.attach("", func(p *pipe, _ *Config) {
			p.fault = func(call string, _ []byte) bool {
				if call == "Send" {
					time.Sleep(time.Nanosecond) // the next write begins before the response is sent
				}
				return false
			}
		})
		begun := time.Now()
		cl.ask("process/write", writeOf("p", "x"))
		synctest.Wait()
		s.sendOutput("p", 1)
		cl.expectOrder()
		want := []string{}
		for n := range uint64(5) {
			cl.ask("process/write", writeOf("p", "x"))
			written <- struct{}{} // the previous one
			want = append(want, fmt.Sprint("response ", n+2), fmt.Sprint("event ", n+1))
			time.Sleep(time.Microsecond)
			cl.expectOrder(want...)
			s.sendOutput("p", n+2)
			cl.expectOrder(want...)
		}
		if took := time.Since(begun); took >= gateOutputLimit {
			t.Errorf("it took %v", took)
		}
		time.Sleep(gateOutputLimit - time.Microsecond)
		cl.expectOrder(want...)
		time.Sleep(2 * time.Microsecond) // the last one was gated
		cl.expectOrder(append(want, "event 6")...)
		s.sendOutput("p", 7)
		time.Sleep(time.Microsecond)
		cl.expectOrder(append(want, "event 6", "event 7")...)
		close(written)
		time.Sleep(time.Microsecond)
		cl.expectOrder(append(want, "event 6", "event 7", "response 7")...)
	})
}

// The process writes and exits during the call, which is shorter and then longer
// than the limit of the gate.
func TestEventGate_SignalResponsePrecedesEffects(t *testing.T) {
	for method, params := range map[string]map[string]any{
		"process/signal":    {"processId": "p", "signal": "interrupt"},
		"process/terminate": {"processId": "p"},
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScriptedServer(t)
				s.signal = func() {
					s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
					time.Sleep(gateOutputLimit - 1)
				}
				cl, _ := srv.attach("")
				cl.ask(method, params)
				cl.expectOrder()
				time.Sleep(gateOutputLimit - 1)
				cl.expectOrder("response 2", "event 1", "event 2")

				s.signal = func() {
					s.sendEvents("p", outputEvent(3, 1), exitedEvent(4))
					time.Sleep(time.Hour)
				}
				cl.ask(method, params)
				time.Sleep(gateOutputLimit)
				cl.expectOrder("response 2", "event 1", "event 2", "event 3")
				time.Sleep(gateEndLimit)
				cl.expectOrder("response 2", "event 1", "event 2", "event 3", "event 4")
				time.Sleep(time.Hour)
				cl.expectOrder("response 2", "event 1", "event 2", "event 3", "event 4", "response 3")
			})
		})
	}
}
