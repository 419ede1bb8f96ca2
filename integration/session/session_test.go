package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

func TestSession_Feed_CoversAllProcesses(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Shell(`printf 'to stdout'; printf 'to stderr' >&2; exit 3`))
		q := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Write(q.ID, "hello")
		q.ExpectOutput(harness.StdoutOf, "hello")
		p.ExpectOutput(harness.StdoutOf, "to stdout")
		p.ExpectOutput(harness.StderrOf, "to stderr")
		p.ExpectNothingMore()
		p.ExpectEnd(s, 3, harness.NoSignal, harness.ByItself)
		if !s.Get(q.ID).GetOwned() {
			s.Error("a process of an attached session has no owner")
		}
		s.CloseStdin(q.ID)
		q.ExpectOutput(harness.StderrOf, "end of input\n")
		q.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if n := describeSession(s, s.Session).GetProcessCount(); n != 2 {
			s.Errorf("the session has %d processes, want 2", n)
		}
	})
}

// Sessions of one principal do not see each other's processes.
func TestSessions_AreIsolated(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		id := s.Start(harness.Program("sleep"), harness.WithID("same"))
		a := s.Lease()
		expectUnseenIn(s, id)
		first := s.Session
		p := runAttached(a, harness.Program("echo"), harness.WithStdin, harness.WithID("same"))
		b := s.Lease()
		expectUnseenIn(s, id)
		if s.Session == first {
			s.Error("two sessions have one id")
		}
		q := runAttached(b, harness.Program("echo"), harness.WithStdin, harness.WithID("same"))
		s.Write("same", "second")
		q.ExpectOutput(harness.StdoutOf, "second")
		s.Session = first
		s.Write("same", "first")
		p.ExpectOutput(harness.StdoutOf, "first")
	})
}

func expectUnseenIn(s *harness.Scenario, id string) {
	s.Helper()
	_, err := s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{SessionId: s.Session, ProcessId: id})
	s.ExpectReason(err, "PROCESS_NOT_FOUND")
}

func TestLease_Cuts_LosesNothing(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes), "-stderr", "1000000"))
		q := runAttached(a, harness.Program("flood", "-bytes", "2000000"))
		for _, goal := range []int{harness.FloodBytes / 3, harness.FloodBytes / 2} {
			for len(p.Output[harness.StdoutOf]) < goal {
				p.Step()
			}
			disconnect(a)
			again(a)
		}
		p.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
		p.ExpectPattern(harness.StderrOf, testproc.StderrPattern, 1_000_000)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		q.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, 2_000_000)
		if p.Dropped != 0 || q.Dropped != 0 {
			s.Errorf("%d and %d bytes were dropped", p.Dropped, q.Dropped)
		}
	})
}

// A client without cursors continues after what it acknowledged.
func TestFeed_WithoutCursors_ContinuesAfterTheAcknowledged(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Write(p.ID, "one,")
		p.ExpectOutput(harness.StdoutOf, "one,")
		detach(a) // by then every acknowledgement has arrived
		again(a)
		p.Silent = true
		s.Write(p.ID, "two,")
		p.ExpectOutput(harness.StdoutOf, "two,")
		detach(a)

		forgetful := &harness.Attached{Scenario: s, Feeds: map[string]*harness.Feed{}}
		again(forgetful)
		f := receiveFrom(forgetful, p.ID)
		f.Last, f.Offsets[harness.StdoutOf] = 1, 4
		f.ExpectOutput(harness.StdoutOf, "two,")
		s.CloseStdin(p.ID)
		f.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

func TestSession_Detach_LeavesIt(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease(harness.WithLeaseGrace(time.Hour))
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Write(p.ID, "one,")
		p.ExpectOutput(harness.StdoutOf, "one,")
		detach(a)
		described := describeSession(s, s.Session)
		if described.GetAttached() || described.GetExpireTime() == nil || described.GetGrace().AsDuration() != time.Hour {
			s.Errorf("a detached session is described as %v", described)
		}
		s.AwaitOwned(p.ID, false)
		s.Write(p.ID, "two,")
		observer := s.Watch(p.ID, 0)
		observer.ExpectOutput(harness.StdoutOf, "one,two,")
		again(a)
		if described := a.Response.GetSession(); !described.GetAttached() || described.GetExpireTime() != nil || described.GetGrace().AsDuration() != time.Hour {
			s.Errorf("attached again, it is described as %v", described)
		}
		p.ExpectOutput(harness.StdoutOf, "two,")
		s.CloseStdin(p.ID)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

func TestLease_HalfClose_LosesIt(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		if err := a.Stream.CloseSend(); err != nil {
			s.Fatal(err)
		}
		if err := failure(a); !harness.IsEnd(err) {
			s.Errorf("the stream ended with %v", err)
		}
		awaitAttached(s, false)
		again(a)
		s.Write(p.ID, "still here")
		p.ExpectOutput(harness.StdoutOf, "still here")
	})
}

func expectGone(s *harness.Scenario, pids ...int32) {
	s.Helper()
	for _, pid := range pids {
		harness.Eventually(s, fmt.Sprintf("process %d is gone", pid), func() bool { return !harness.ProcessAlive(pid) })
	}
}

// A session whose client does not return ends with all its processes and their descendants.
func TestSession_Lost_EndsAfterItsGrace(t *testing.T) {
	for name, grace := range map[string]time.Duration{"brief": 300 * time.Millisecond, "none": 0} {
		t.Run(name, func(t *testing.T) {
			harness.OverTransports(t, func(s *harness.Scenario) {
				a := s.Lease(harness.WithLeaseGrace(grace))
				p := runAttached(a, harness.Program("sleep"))
				q := runAttached(a, harness.Program("tree", "2"))
				pids := append(treeOf(s, q), s.Get(p.ID).GetPid(), s.Get(q.ID).GetPid())
				lost := s.Session
				disconnect(a)
				awaitOver(s, lost)
				expectGone(s, pids...)
				s.ExpectReason(a.TryAttach(), "SESSION_NOT_FOUND")
				_, err := s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{SessionId: lost, ProcessId: p.ID})
				s.ExpectReason(err, "SESSION_NOT_FOUND")
			})
		})
	}
}

// treeOf returns the descendants that the program tree prints.
func treeOf(s *harness.Scenario, f *harness.Feed) (pids []int32) {
	s.Helper()
	for !strings.HasSuffix(string(f.Output[harness.StdoutOf]), "\n") {
		f.Step()
	}
	for _, word := range strings.Fields(string(f.Output[harness.StdoutOf]))[1:] {
		pid, err := strconv.Atoi(word)
		if err != nil {
			s.Fatal(err)
		}
		pids = append(pids, int32(pid))
	}
	return pids
}

func TestSession_Close_EndsItsProcesses(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		outside := s.Start(harness.Program("sleep"))
		a := s.Lease()
		p := runAttached(a, harness.Program("ignore-term"))
		q := runAttached(a, harness.Program("tree", "2"))
		pids := append(treeOf(s, q), s.Get(p.ID).GetPid(), s.Get(q.ID).GetPid())
		closed := s.Session
		closeSession(s, closed)
		for _, pid := range pids { // at once: CloseSession returns when nothing is left
			if harness.ProcessAlive(pid) {
				s.Errorf("process %d outlived its session", pid)
			}
		}
		s.ExpectReason(failure(a), "SESSION_CLOSED")
		if describeSession(s, closed) != nil {
			s.Error("a closed session is listed")
		}
		s.ExpectReason(a.TryAttach(), "SESSION_NOT_FOUND")
		_, err := s.Leases.CloseSession(s.Ctx, &execwirev1.CloseSessionRequest{SessionId: closed})
		s.ExpectReason(err, "SESSION_NOT_FOUND")

		s.Session = ""
		if state := s.Get(outside).GetState(); state != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
			s.Errorf("a process of another session is %v", state)
		}
		pid := s.Get(outside).GetPid()
		closeSession(s, "default")
		expectGone(s, pid)
		expectUnseenIn(s, outside)
		s.AwaitClosed(s.Start(harness.Shell("exit 0"), harness.WithID(outside))) // it is there again, and empty
	})
}

// A call takes effect even if its caller disconnects.
func TestSession_CloseCanceled_Continues(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("ignore-term"))
		p.ExpectOutput(harness.StdoutOf, "ready\n")
		pid := s.Get(p.ID).GetPid()
		ctx, cancel := context.WithCancelCause(s.Ctx)
		go func() {
			_ = failure(a) // it has begun
			cancel(harness.ErrDisconnect)
		}()
		_, err := s.Leases.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: s.Session})
		if err != nil && ctx.Err() == nil {
			s.Errorf("CloseSession: %v", err)
		}
		awaitOver(s, s.Session)
		expectGone(s, pid)
	})
}

// A RunProcess stream owns its process, in a leased session too. A process that it releases
// goes to the attachment.
func TestSession_Run_IsReleasedToIt(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Write(p.ID, "to the feed,")
		p.ExpectOutput(harness.StdoutOf, "to the feed,")

		o := s.Own(p.ID, p.Last)
		o.Offsets[harness.StdoutOf] = p.Offsets[harness.StdoutOf]
		for len(a.Released) == 0 {
			if err := next(a); err != nil {
				s.Fatal(err)
			}
		}
		if a.Released[0] != p.ID || len(p.Waiting) != 0 {
			s.Errorf("released is %v, and %v waits", a.Released, p.Waiting)
		}
		o.Sent = o.Started.GetStdinOffset()
		o.Write("to the stream,")
		o.ExpectOutput(harness.StdoutOf, "to the stream,")
		o.Detach()

		p.Last, p.Offsets[harness.StdoutOf] = o.Last, o.Offsets[harness.StdoutOf]
		s.Write(p.ID, "to the feed again")
		p.ExpectOutput(harness.StdoutOf, "to the feed again")
		s.CloseStdin(p.ID)
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)

		q := s.Run(harness.Shell("printf mine"))
		q.ExpectOutput(harness.StdoutOf, "mine")
		q.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		if f := a.Feeds[q.ID]; f != nil {
			s.Errorf("the feed delivers a process that a stream owns: %v", f.Waiting)
		}
	})
}

// A lost RunProcess stream has its own grace period. Meanwhile the session continues without
// the process; afterwards it receives the exit record.
func TestSession_LostRun_HasItsOwnGrace(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease(harness.WithLeaseGrace(time.Hour))
		o := s.Run(harness.Program("sleep"), harness.WithGrace(200*time.Millisecond))
		o.Leave(harness.ErrDisconnect) // and not the connection, which the lease needs
		receiveFrom(a, o.ID).ExpectEnd(s, 0, harness.Sigkill, harness.Terminated)
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		s.Write(p.ID, "still here")
		p.ExpectOutput(harness.StdoutOf, "still here")
		q := s.Run(harness.Program("echo"), harness.WithStdin, harness.WithGrace(time.Hour))
		q.Write("one,")
		q.ExpectOutput(harness.StdoutOf, "one,")
		q.Leave(harness.ErrDisconnect)
		s.AwaitOwned(q.ID, false)
		detach(a)
		again(a) // it does not take a process whose stream may resume
		q.Resume()
		q.Write("two")
		q.ExpectOutput(harness.StdoutOf, "two")
		q.EndInput()
		q.ExpectOutput(harness.StderrOf, "end of input\n")
		q.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// A session of the SDK survives broken connections while several processes write.
func TestSession_Cuts_LosesNothing(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	const processes, bytes = 4, 6 << 20
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			s := harness.NewScenario(t, harness.NewServer(t, harness.SmallRetention), d)
			seed := rand.Uint64()
			t.Logf("the seed is %d", seed)
			var resumed atomic.Int64
			session, err := client.New(s.Conn).AttachSession(s.Ctx, client.SessionOptions{OnResumed: func() { resumed.Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			s.Session = session.ID()
			followers := map[string]*harness.Follower{}
			for range processes {
				followers[s.Start(harness.Program("flood", "-bytes", fmt.Sprint(bytes)))] = harness.NewFollower(t, 0)
			}
			stop := harness.CutConnections(s.Proxy, rand.New(rand.NewPCG(seed, 0)), bytes/2)
			for left := processes; left > 0; {
				got, err := session.Next(s.Ctx)
				if err != nil {
					t.Fatalf("Next: %v", err)
				}
				f := followers[got.ProcessID]
				for _, event := range got.Events {
					f.Check(event)
				}
				session.Acknowledge(got.ProcessID, f.Last)
				if f.Totals != nil {
					left--
				}
			}
			stop()
			s.Proxy.CutAfter(func() int64 { return 1 << 40 })
			s.Proxy.Cut()
			for _, f := range followers {
				verifier := testproc.StdoutPattern.NewVerifier()
				if !harness.Matches(verifier, f.Output[harness.StdoutOf]) || verifier.Offset() != bytes || f.Dropped != 0 {
					t.Errorf("%d right bytes of %d, %d dropped", verifier.Offset(), bytes, f.Dropped)
				}
			}
			if n := resumed.Load(); n < harness.MinCuts {
				t.Errorf("the session was taken up %d times, which shows little", n)
			}
			ctx, cancel := context.WithTimeoutCause(s.Ctx, harness.StepTimeout, harness.ErrTimeout)
			defer cancel()
			if err := session.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
