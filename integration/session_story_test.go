package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

func TestASessionTellsOfAllItsProcesses(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(shell(`printf 'to stdout'; printf 'to stderr' >&2; exit 3`))
		q := a.run(program("echo"), stdin)
		s.write(q.id, "hello")
		q.expectOutput(stdoutOf, "hello")
		p.expectOutput(stdoutOf, "to stdout")
		p.expectOutput(stderrOf, "to stderr")
		p.expectNothingMore()
		p.expectEnd(s, 3, noSignal, byItself)
		if !s.get(q.id).GetOwned() {
			s.Error("a process of an attached session is nobody's")
		}
		s.closeStdin(q.id)
		q.expectOutput(stderrOf, "end of input\n")
		q.expectEnd(s, 0, noSignal, byItself)
		if n := s.describe(s.session).GetProcessCount(); n != 2 {
			s.Errorf("the session has %d processes, want 2", n)
		}
	})
}

// Sessions of one principal do not see each other's processes.
func TestSessionsAreApart(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		id := s.start(program("sleep"), named("same"))
		a := s.lease()
		expectUnseenIn(s, id)
		first := s.session
		p := a.run(program("echo"), stdin, named("same"))
		b := s.lease()
		expectUnseenIn(s, id)
		if s.session == first {
			s.Error("two sessions have one id")
		}
		q := b.run(program("echo"), stdin, named("same"))
		s.write("same", "second")
		q.expectOutput(stdoutOf, "second")
		s.session = first
		s.write("same", "first")
		p.expectOutput(stdoutOf, "first")
	})
}

func expectUnseenIn(s *story, id string) {
	s.Helper()
	_, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{SessionId: s.session, ProcessId: id})
	s.expectReason(err, "PROCESS_NOT_FOUND")
}

func TestALeaseSurvivesCuts(t *testing.T) {
	withConfig(t, small, func(s *story) {
		a := s.lease()
		p := a.run(program("flood", "-bytes", fmt.Sprint(floodBytes), "-stderr", "1000000"))
		q := a.run(program("flood", "-bytes", "2000000"))
		for _, goal := range []int{floodBytes / 3, floodBytes / 2} {
			for len(p.output[stdoutOf]) < goal {
				p.step()
			}
			a.disconnect()
			a.again()
		}
		p.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
		p.expectPattern(stderrOf, testproc.StderrPattern, 1_000_000)
		p.expectEnd(s, 0, noSignal, byItself)
		q.expectPattern(stdoutOf, testproc.StdoutPattern, 2_000_000)
		if p.dropped != 0 || q.dropped != 0 {
			s.Errorf("%d and %d bytes were dropped", p.dropped, q.dropped)
		}
	})
}

// A client that remembers nothing goes on after what it acknowledged.
func TestWithoutCursorsTheFeedGoesOnAfterWhatWasAcknowledged(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		s.write(p.id, "one,")
		p.expectOutput(stdoutOf, "one,")
		a.detach() // by then every acknowledgement has arrived
		a.again()
		p.silent = true
		s.write(p.id, "two,")
		p.expectOutput(stdoutOf, "two,")
		a.detach()

		forgetful := &attached{story: s, feeds: map[string]*feed{}}
		forgetful.again()
		f := forgetful.feed(p.id)
		f.last, f.offsets[stdoutOf] = 1, 4
		f.expectOutput(stdoutOf, "two,")
		s.closeStdin(p.id)
		f.expectEnd(s, 0, noSignal, byItself)
	})
}

func TestDetachingLeavesASessionAlone(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease(keep(time.Hour))
		p := a.run(program("echo"), stdin)
		s.write(p.id, "one,")
		p.expectOutput(stdoutOf, "one,")
		a.detach()
		described := s.describe(s.session)
		if described.GetAttached() || described.GetExpireTime() == nil || described.GetGrace().AsDuration() != time.Hour {
			s.Errorf("a detached session is described as %v", described)
		}
		s.awaitOwned(p.id, false)
		s.write(p.id, "two,")
		observer := s.watch(p.id, 0)
		observer.expectOutput(stdoutOf, "one,two,")
		a.again()
		if described := a.told.GetSession(); !described.GetAttached() || described.GetExpireTime() != nil || described.GetGrace().AsDuration() != time.Hour {
			s.Errorf("attached again, it is described as %v", described)
		}
		p.expectOutput(stdoutOf, "two,")
		s.closeStdin(p.id)
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

func TestHalfClosingALeaseLosesIt(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		if err := a.stream.CloseSend(); err != nil {
			s.Fatal(err)
		}
		if err := a.failure(); !isEnd(err) {
			s.Errorf("the stream ended with %v", err)
		}
		s.awaitAttached(false)
		a.again()
		s.write(p.id, "still here")
		p.expectOutput(stdoutOf, "still here")
	})
}

// alive reports whether a process is there, by the operating system's word.
func alive(pid int32) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/status")
	return err == nil && !strings.Contains(string(status), "\nState:\tZ")
}

func (s *story) expectGone(pids ...int32) {
	s.Helper()
	for _, pid := range pids {
		eventually(s, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// A session that nobody returns to ends with all its processes and their
// descendants.
func TestALostSessionEndsAfterItsGrace(t *testing.T) {
	for name, grace := range map[string]time.Duration{"brief": 300 * time.Millisecond, "none": 0} {
		t.Run(name, func(t *testing.T) {
			atEveryDoor(t, func(s *story) {
				a := s.lease(keep(grace))
				p := a.run(program("sleep"))
				q := a.run(program("tree", "2"))
				pids := append(s.treeOf(q), s.get(p.id).GetPid(), s.get(q.id).GetPid())
				lost := s.session
				a.disconnect()
				s.awaitOver(lost)
				s.expectGone(pids...)
				s.expectReason(a.tryAttach(), "SESSION_NOT_FOUND")
				_, err := s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{SessionId: lost, ProcessId: p.id})
				s.expectReason(err, "SESSION_NOT_FOUND")
			})
		})
	}
}

// treeOf returns the descendants that the program tree says it has.
func (s *story) treeOf(f *feed) (pids []int32) {
	s.Helper()
	for !strings.HasSuffix(string(f.output[stdoutOf]), "\n") {
		f.step()
	}
	for _, word := range strings.Fields(string(f.output[stdoutOf]))[1:] {
		pid, err := strconv.Atoi(word)
		if err != nil {
			s.Fatal(err)
		}
		pids = append(pids, int32(pid))
	}
	return pids
}

func TestClosingASessionEndsEverythingInIt(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		outside := s.start(program("sleep"))
		a := s.lease()
		p := a.run(program("ignore-term"))
		q := a.run(program("tree", "2"))
		pids := append(s.treeOf(q), s.get(p.id).GetPid(), s.get(q.id).GetPid())
		closed := s.session
		s.closeSession(closed)
		for _, pid := range pids { // at once: CloseSession returns when nothing is left
			if alive(pid) {
				s.Errorf("process %d outlived its session", pid)
			}
		}
		s.expectReason(a.failure(), "SESSION_CLOSED")
		if s.describe(closed) != nil {
			s.Error("a closed session is listed")
		}
		s.expectReason(a.tryAttach(), "SESSION_NOT_FOUND")
		_, err := s.leases.CloseSession(s.ctx, &execwirev1.CloseSessionRequest{SessionId: closed})
		s.expectReason(err, "SESSION_NOT_FOUND")

		s.session = ""
		if state := s.get(outside).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Errorf("a process of another session is %v", state)
		}
		pid := s.get(outside).GetPid()
		s.closeSession("default")
		s.expectGone(pid)
		expectUnseenIn(s, outside)
		s.awaitClosed(s.start(shell("exit 0"), named(outside))) // it is there again, and empty
	})
}

// What was asked for is done, though the one who asked has gone.
func TestClosingGoesOnWithoutItsCaller(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("ignore-term"))
		p.expectOutput(stdoutOf, "ready\n")
		pid := s.get(p.id).GetPid()
		ctx, cancel := context.WithCancelCause(s.ctx)
		go func() {
			_ = a.failure() // it has begun
			cancel(errDisconnect)
		}()
		_, err := s.leases.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.session})
		if err != nil && ctx.Err() == nil {
			s.Errorf("CloseSession: %v", err)
		}
		s.awaitOver(s.session)
		s.expectGone(pid)
	})
}

// A RunProcess stream owns what it runs, in a leased session too. What it gives
// up goes to the attachment.
func TestARunInASessionIsReleasedToIt(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		s.write(p.id, "to the feed,")
		p.expectOutput(stdoutOf, "to the feed,")

		o := s.own(p.id, p.last)
		o.offsets[stdoutOf] = p.offsets[stdoutOf]
		for len(a.released) == 0 {
			if err := a.next(); err != nil {
				s.Fatal(err)
			}
		}
		if a.released[0] != p.id || len(p.waiting) != 0 {
			s.Errorf("released is %v, and %v waits", a.released, p.waiting)
		}
		o.sent = o.started.GetStdinOffset()
		o.write("to the stream,")
		o.expectOutput(stdoutOf, "to the stream,")
		o.detach()

		p.last, p.offsets[stdoutOf] = o.last, o.offsets[stdoutOf]
		s.write(p.id, "to the feed again")
		p.expectOutput(stdoutOf, "to the feed again")
		s.closeStdin(p.id)
		p.expectEnd(s, 0, noSignal, byItself)

		q := s.run(shell("printf mine"))
		q.expectOutput(stdoutOf, "mine")
		q.expectEnd(s, 0, noSignal, byItself)
		if f := a.feeds[q.id]; f != nil {
			s.Errorf("the feed told of a process that a stream owns: %v", f.waiting)
		}
	})
}

// A RunProcess stream that is lost has a grace of its own: the session goes on
// without its process, and is told how that ended.
func TestALostRunInASessionHasItsOwnGrace(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		a := s.lease(keep(time.Hour))
		o := s.run(program("sleep"), grace(200*time.Millisecond))
		o.leave(errDisconnect) // and not the wire, which the lease needs
		a.feed(o.id).expectEnd(s, 0, sigkill, terminated)
		p := a.run(program("echo"), stdin)
		s.write(p.id, "still here")
		p.expectOutput(stdoutOf, "still here")
		q := s.run(program("echo"), stdin, grace(time.Hour))
		q.write("one,")
		q.expectOutput(stdoutOf, "one,")
		q.leave(errDisconnect)
		s.awaitOwned(q.id, false)
		a.detach()
		a.again() // which does not take what a stream may come back to
		q.resume()
		q.write("two")
		q.expectOutput(stdoutOf, "two")
		q.endInput()
		q.expectOutput(stderrOf, "end of input\n")
		q.expectEnd(s, 0, noSignal, byItself)
	})
}

// The SDK's session survives wires that break anywhere, with several processes
// that speak at once.
func TestASessionSurvivesBrokenConnections(t *testing.T) {
	slow(t)
	waits(t)
	const processes, bytes = 4, 6 << 20
	for _, d := range wires {
		t.Run(string(d), func(t *testing.T) {
			s := newStory(t, newServer(t, small), d)
			seed := rand.Uint64()
			t.Logf("the seed is %d", seed)
			var resumed atomic.Int64
			session, err := client.New(s.conn).AttachSession(s.ctx, client.SessionOptions{OnResumed: func() { resumed.Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			s.session = session.ID()
			followers := map[string]*follower{}
			for range processes {
				followers[s.start(program("flood", "-bytes", fmt.Sprint(bytes)))] = newFollower(t, 0)
			}
			stop := harass(s.wire, rand.New(rand.NewPCG(seed, 0)), bytes/2)
			for left := processes; left > 0; {
				got, err := session.Next(s.ctx)
				if err != nil {
					t.Fatalf("Next: %v", err)
				}
				f := followers[got.ProcessID]
				for _, event := range got.Events {
					f.take(event)
				}
				session.Acknowledge(got.ProcessID, f.last)
				if f.totals != nil {
					left--
				}
			}
			stop()
			s.wire.cutAfter(func() int64 { return 1 << 40 })
			s.wire.cut()
			for _, f := range followers {
				verifier := testproc.StdoutPattern.NewVerifier()
				if !wrote(verifier, f.output[stdoutOf]) || verifier.Offset() != bytes || f.dropped != 0 {
					t.Errorf("%d right bytes of %d, %d dropped", verifier.Offset(), bytes, f.dropped)
				}
			}
			if n := resumed.Load(); n < leastCuts {
				t.Errorf("the session was taken up %d times, which shows little", n)
			}
			ctx, cancel := context.WithTimeoutCause(s.ctx, patience, errTooLong)
			defer cancel()
			if err := session.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
