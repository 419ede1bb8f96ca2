package integration

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

func TestAPrincipalHasSoManySessions(t *testing.T) {
	two := func(cfg *config.Config) { cfg.Sessions = 2 }
	withConfig(t, two, func(s *story) {
		s.lease()
		first := s.session
		s.lease().detach()
		third := &attached{story: s, feeds: map[string]*feed{}}
		s.session = ""
		err := third.tryAttach()
		s.expectReason(err, "TOO_MANY_SESSIONS")
		if limit := metadataOf(err)["limit"]; limit != "2" {
			s.Errorf("the limit is said to be %q", limit)
		}
		s.start(shell("exit 0")) // the default session is none of them
		s.closeSession(first)
		s.lease()
	})
}

// A start beyond the limit does nothing; when a process has closed there is room.
func TestASessionHasSoManyProcesses(t *testing.T) {
	two := func(cfg *config.Config) { cfg.Processes = 2 }
	withConfig(t, two, func(s *story) {
		a := s.lease()
		p := a.run(program("echo"), stdin)
		a.run(program("sleep"))
		for range 3 {
			_, err := s.processes.StartProcess(s.ctx, s.request(shell("exit 0")).GetProcess())
			s.expectReason(err, "TOO_MANY_PROCESSES")
			if limit := metadataOf(err)["limit"]; limit != "2" {
				s.Errorf("the limit is said to be %q", limit)
			}
		}
		if n := s.describe(s.session).GetProcessCount(); n != 2 {
			s.Errorf("the session has %d processes", n)
		}
		s.closeStdin(p.id)
		s.awaitClosed(p.id)
		eventually(s, "there is room", func() bool {
			_, err := s.processes.StartProcess(s.ctx, s.request(program("sleep"), named("third")).GetProcess())
			return err == nil
		})
		s.session = ""
		s.start(program("sleep")) // other sessions have their own
	})
}

// What may have to be kept of all processes is bounded. What has closed and is
// nobody's gives way.
func TestTheServerKeepsSoMuchOutput(t *testing.T) {
	tight := func(cfg *config.Config) { cfg.RetainedOutput, cfg.RetainedTotal = 24<<20, 64<<20 }
	withConfig(t, tight, func(s *story) {
		s.awaitClosed(s.start(program("flood", "-bytes", fmt.Sprint(30<<20)), named("old")))
		for _, name := range []string{"first", "second"} {
			eventually(s, "there is room", func() bool {
				_, err := s.processes.StartProcess(s.ctx, s.request(program("sleep"), named(name)).GetProcess())
				return err == nil
			})
		}
		expectUnseen(s, "old")
		_, err := s.processes.StartProcess(s.ctx, s.request(shell("exit 0")).GetProcess())
		s.expectReason(err, "RETAINED_OUTPUT_FULL")
		if limit := metadataOf(err)["limit_bytes"]; limit != fmt.Sprint(64<<20) {
			s.Errorf("the limit is said to be %q", limit)
		}
		s.terminate("first", forced)
		s.awaitClosed("first")
		eventually(s, "there is room", func() bool {
			_, err := s.processes.StartProcess(s.ctx, s.request(program("sleep"), named("third")).GetProcess())
			return err == nil
		})
	})
}

// The limits are reported as they are.
func TestLimitsAreReported(t *testing.T) {
	odd := func(cfg *config.Config) {
		cfg.Processes, cfg.Sessions, cfg.RetainedTotal, cfg.Spool, cfg.Streams, cfg.HeaderList = 11, 12, 64<<20+13, 1<<20+14, 15, 8<<10+16
		cfg.SessionsTotal = 17
	}
	withConfig(t, odd, func(s *story) {
		response, err := execwirev1.NewEnvironmentServiceClient(s.conn).GetEnvironment(s.ctx, &execwirev1.GetEnvironmentRequest{})
		if err != nil {
			s.Fatal(err)
		}
		l := response.GetLimits()
		got := fmt.Sprint(l.GetProcessesPerSession(), l.GetSessionsPerPrincipal(), l.GetRetainedOutputBytesTotal(), l.GetSpoolBytes(), l.GetStreamsPerConnection(), l.GetHeaderListBytes(), l.GetSessionsTotal())
		if want := fmt.Sprint(11, 12, 64<<20+13, 1<<20+14, 15, 8<<10+16, 17); got != want {
			s.Errorf("the limits are %s, want %s", got, want)
		}
	})
}

// While one process floods and another's output is not acknowledged, all others
// are heard.
func TestAFeedIsFair(t *testing.T) {
	withConfig(t, small, func(s *story) {
		a := s.lease()
		stuck := a.run(program("flood", "-bytes", fmt.Sprint(floodBytes)))
		stuck.silent = true
		window := int(a.told.GetOutputWindowBytes())
		for len(stuck.output[stdoutOf]) < window/2 {
			stuck.step()
		}
		flood := a.run(program("flood", "-bytes", fmt.Sprint(uint64(1)<<50))) // has no end
		flood.step()
		var echoes []*feed
		for range 10 {
			echoes = append(echoes, a.run(program("echo"), stdin))
		}
		for i, echo := range echoes {
			flood.step()
			said := fmt.Sprint("hello ", i)
			s.write(echo.id, said)
			a.alongside(flood, func() bool { return len(echo.waiting) > 0 })
			echo.expectOutput(stdoutOf, said)
		}
		if got := len(stuck.output[stdoutOf]); got > window {
			s.Errorf("%d bytes of a process came unacknowledged, the window is %d", got, window)
		}
		if exit := s.get(stuck.id).GetExit(); exit != nil {
			s.Errorf("a process that nobody listens to ended with %v", exit)
		}
		s.terminate(flood.id, forced)
		stuck.silent = false
		a.acknowledge(stuck.id, stuck.last)
		stuck.expectPattern(stdoutOf, testproc.StdoutPattern, floodBytes)
	})
}

// alongside takes what the flood says, and drops it, until something holds.
func (a *attached) alongside(flood *feed, holds func() bool) {
	a.story.Helper()
	for !holds() {
		flood.step()
		flood.output[stdoutOf] = nil
	}
}

// Processes that all have more to say than fits into a message take turns, one
// message each.
func TestAFeedTakesTurns(t *testing.T) {
	const (
		floods = 3
		spoken = 600 << 10           // most of a window, of which a quarter is for stderr
		each   = spoken / (64 << 10) // messages, which within the program are twice as large
	)
	atEveryDoor(t, func(s *story) {
		a := s.lease(keep(patience))
		a.detach()
		left := map[string]int{}
		for range floods { // while nobody is attached, so that all are ready when somebody is
			left[s.start(program("flood", "-bytes", fmt.Sprint(floodBytes)))] = spoken
		}
		for id := range left {
			eventually(s, "it has used up its window", func() bool { return s.spoken(id) > spoken })
		}
		a.again()
		for !slices.Contains(slices.Collect(maps.Values(left)), 0) {
			if err := a.next(); err != nil {
				s.Fatal(err)
			}
			id := a.got[len(a.got)-1]
			f := a.feed(id)
			for _, event := range f.waiting {
				left[id] = max(0, left[id]-len(event.GetOutput().GetData()))
			}
			f.waiting = nil
		}
		for i, id := range a.got {
			if turn := a.got[i%floods]; id != turn {
				s.Fatalf("message %d is of %s, whose turn it is not: %v", i, id, a.got)
			}
		}
		if len(a.feeds) != floods || len(a.got) < (floods-1)*each {
			s.Errorf("%d messages of %d processes show little", len(a.got), len(a.feeds))
		}
		s.closeSession(s.session)
	})
}

// spoken is how much a process has written on stdout so far.
func (s *story) spoken(id string) uint64 {
	s.Helper()
	snapshot, err := s.processes.SnapshotOutput(s.ctx, &execwirev1.SnapshotOutputRequest{SessionId: s.session, ProcessId: id})
	if err != nil {
		s.Fatal(err)
	}
	return snapshot.GetStreams()[0].GetTotalBytes()
}

// A client that reads and acknowledges nothing makes the server hold a window
// of each process, and no more.
func TestASessionHoldsAWindowOfEachProcess(t *testing.T) {
	const processes = 40
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	withConfig(t, small, func(s *story) {
		if raceEnabled {
			s.Skip("race detection multiplies memory")
		}
		a := s.lease()
		before := heap()
		var ids []string
		for range processes {
			ids = append(ids, s.start(program("flood", "-bytes", fmt.Sprint(floodBytes))))
		}
		for _, id := range ids {
			eventually(s, "the window is used up", func() bool {
				return s.get(id).GetLastSeq() > 0
			})
		}
		s.awaitExitNever(ids[0])
		if grown := heap() - before; grown > processes*(256<<10)+8<<20 {
			s.Errorf("%d processes that nobody listens to take %d KiB", processes, grown>>10)
		}
		for _, id := range ids {
			if exit := s.get(id).GetExit(); exit != nil {
				s.Errorf("process %s ended with %v", id, exit)
			}
		}
		a.leave(errDisconnect)
		s.closeSession(s.session)
	})
}

// metadataOf is what an error's reason comes with.
func metadataOf(err error) map[string]string {
	var typed *client.Error
	if errors.As(client.FromRPC(err), &typed) {
		return typed.Metadata
	}
	return nil
}
