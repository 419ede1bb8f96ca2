package gateway

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// newCommand serves a client that has started p in the older dialect.
func newCommand(t *testing.T) (*scriptedServer, *client) {
	s, srv := newScriptedServer(t)
	cl, _ := srv.attach("")
	cl.command("p", "")
	return s, cl
}

// expectNotifications checks the notifications of p: a number is the seq of
// output.
func (cl *client) expectNotifications(want string) {
	cl.t.Helper()
	synctest.Wait()
	var got []string
	for _, f := range cl.all() {
		switch f.Method {
		case "":
		case "command/exec/outputDelta":
			got = append(got, string(rune('0'+f.Params.Seq)))
		default:
			got = append(got, strings.TrimPrefix(f.Method, "command/exec/"))
		}
	}
	if text := strings.Join(got, " "); text != want {
		cl.t.Errorf("the client received %q, want %q", text, want)
	}
}

func TestCommandExit_SentAtCloseOrAfterTimeout(t *testing.T) {
	t.Run("the close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, cl := newCommand(t)
			s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
			time.Sleep(closeTimeout - 1)
			s.sendEvents("p", outputEvent(3, 1))
			cl.expectNotifications("1 3")
			s.sendEvents("p", closedEvent(4))
			cl.expectNotifications("1 3 exited")
			time.Sleep(time.Hour)
			cl.expectNotifications("1 3 exited")
		})
	})
	t.Run("two seconds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, cl := newCommand(t)
			s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
			s.sendEvents("p", outputEvent(3, 1))
			time.Sleep(closeTimeout - 1)
			cl.expectNotifications("1 3")
			time.Sleep(time.Nanosecond)
			cl.expectNotifications("1 3 exited")
			s.sendEvents("p", outputEvent(4, 1))
			s.sendEvents("p", closedEvent(5))
			cl.expectNotifications("1 3 exited 4")
		})
	})
	t.Run("all at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, cl := newCommand(t)
			s.sendEvents("p", outputEvent(1, 1), exitedEvent(2), closedEvent(3))
			cl.expectNotifications("1 exited")
			time.Sleep(time.Hour)
			cl.expectNotifications("1 exited")
		})
	})
}

// The client does not read while the close timeout passes.
func TestCommandExit_SlowReader_FollowsEarlierOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("", func(p *pipe, _ *Config) { p.capacity = 1 })
		cl.command("p", "")
		cl.stopReading()
		s.sendEvents("p", outputEvent(1, 1), outputEvent(2, 1), outputEvent(3, 1), exitedEvent(4))
		s.sendEvents("p", outputEvent(5, 1))
		time.Sleep(time.Hour)
		cl.resumeReading()
		cl.expectNotifications("1 2 3 exited 5")
		s.sendEvents("p", closedEvent(6))
		cl.expectNotifications("1 2 3 exited 5")
	})
}

// Output after the exit is gated by a pending write.
func TestCommandExit_GatedOutput_DoesNotDelayExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cl := newCommand(t)
		s.sendEvents("p", exitedEvent(1))
		time.Sleep(closeTimeout - 1)
		written := make(chan struct{})
		s.write = func() { <-written }
		cl.ask("command/exec/write", writeOf("p", "x"))
		synctest.Wait()
		s.sendEvents("p", outputEvent(2, 1))
		cl.expectNotifications("")
		time.Sleep(time.Nanosecond)
		cl.expectNotifications("exited")
		time.Sleep(gateOutputLimit)
		cl.expectNotifications("exited 2")
		close(written)
		cl.expectNotifications("exited 2")
	})
}

func TestCommandExit_GapBeforeExit_ReportsGap(t *testing.T) {
	for name, end := range map[string]func(*scriptedServer){
		"at the close": func(s *scriptedServer) { s.sendEvents("p", closedEvent(11)) },
		"before it":    func(*scriptedServer) { time.Sleep(closeTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cl := newCommand(t)
				s.sendOutput("p", 1)
				gap := &execwirev1.OutputGap{FirstAvailableSeq: 10, DroppedBytes: 77}
				s.sendEvents("p", &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: gap}}, exitedEvent(10))
				end(s)
				cl.expectNotifications("1 exited")
				f := cl.event("p", "command/exec/exited")
				if g := f.Params.Gap; g == nil || g.FirstAvailableSeq != 10 || g.DroppedBytes != 77 {
					t.Errorf("the client received %s", f.raw)
				}
			})
		})
	}
}

func TestCommandExit_Pending_DoesNotDelayDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cl := newCommand(t)
		s.sendEvents("p", exitedEvent(1))
		synctest.Wait()
		begun := time.Now()
		cl.cut()
		if err := cl.ended(); !errors.Is(err, errLost) || time.Since(begun) != 0 {
			t.Errorf("Serve returned %v after %v", err, time.Since(begun))
		}
	})
}

func TestDialect_ReusedID_IsThatOfNewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, cl := newCommand(t)
		run := func() {
			s.sendEvents("p", outputEvent(1, 1), exitedEvent(2), closedEvent(3))
			synctest.Wait() // an id is in use until its process has closed
		}
		run()
		cl.start("p", "")
		run()
		cl.command("p", "")
		run()
		want := []string{"command/exec/outputDelta", "command/exec/exited", "process/output", "process/exited", "process/closed",
			"command/exec/outputDelta", "command/exec/exited"}
		if got := cl.methodsOf("p"); !slices.Equal(got, want) {
			t.Errorf("the client received %q", got)
		}
	})
}

// The process of the resumed session has written nothing yet, and a request about
// it precedes its first event.
func TestDialect_Resumed_IsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		cl.command("p", "")
		cl.drop()
		s.last["p"] = 0
		cl, _ = srv.attach("s")
		s.write = func() {}
		cl.must("process/write", writeOf("p", "x"))
		synctest.Wait()
		s.sendEvents("p", outputEvent(1, 1), exitedEvent(2), closedEvent(3))
		cl.expectNotifications("1 exited")
	})
}

// The process exited while no client was attached, and has not closed.
func TestCommandExit_WhileDetached_IsSentAfterResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		cl.command("p", "")
		cl.drop()
		s.last["p"] = 2
		cl, _ = srv.attach("s")
		s.sendEvents("p", outputEvent(1, 1), exitedEvent(2))
		time.Sleep(closeTimeout - 1)
		cl.expectNotifications("")
		time.Sleep(time.Nanosecond)
		cl.expectNotifications("exited")
		s.sendEvents("p", outputEvent(3, 1), closedEvent(4))
		cl.expectNotifications("exited 3")
	})
}

// Commands close at once, late, and after a resume.
func TestCommandRecords_ClosedCommands_AreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["resumed"], s.labels["resumed"] = 0, processMode{legacy: true}.labels()
		c, cl := srv.serveHere()
		cl.initialize("s")
		ids := []string{"resumed"}
		for i := range 100 {
			id := fmt.Sprint("p", i)
			cl.command(id, "")
			ids = append(ids, id)
		}
		for i, id := range ids {
			s.sendEvents(id, outputEvent(1, 1), exitedEvent(2))
			if i%2 == 0 {
				s.sendEvents(id, closedEvent(3))
			}
		}
		time.Sleep(2 * closeTimeout)
		for i, id := range ids {
			if i%2 == 1 {
				s.sendEvents(id, outputEvent(3, 1), closedEvent(4))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.table.mu.Lock()
		defer c.table.mu.Unlock()
		if len(c.table.records) != 0 {
			t.Errorf("%d records are left", len(c.table.records))
		}
	})
}
