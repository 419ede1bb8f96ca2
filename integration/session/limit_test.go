package session

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

func TestLimit_SessionsPerPrincipal(t *testing.T) {
	two := func(cfg *config.Config) { cfg.Sessions = 2 }
	harness.WithConfig(t, two, func(s *harness.Scenario) {
		s.Lease()
		first := s.Session
		detach(s.Lease())
		third := &harness.Attached{Scenario: s, Feeds: map[string]*harness.Feed{}}
		s.Session = ""
		err := third.TryAttach()
		s.ExpectReason(err, "TOO_MANY_SESSIONS")
		if limit := harness.MetadataOf(err)["limit"]; limit != "2" {
			s.Errorf("the reported limit is %q", limit)
		}
		s.Start(harness.Shell("exit 0")) // the default session is none of them
		closeSession(s, first)
		s.Lease()
	})
}

// A start beyond the limit fails without effect. A closed process no longer counts.
func TestLimit_ProcessesPerSession(t *testing.T) {
	two := func(cfg *config.Config) { cfg.Processes = 2 }
	harness.WithConfig(t, two, func(s *harness.Scenario) {
		a := s.Lease()
		p := runAttached(a, harness.Program("echo"), harness.WithStdin)
		runAttached(a, harness.Program("sleep"))
		for range 3 {
			_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Shell("exit 0")).GetProcess())
			s.ExpectReason(err, "TOO_MANY_PROCESSES")
			if limit := harness.MetadataOf(err)["limit"]; limit != "2" {
				s.Errorf("the reported limit is %q", limit)
			}
		}
		if n := describeSession(s, s.Session).GetProcessCount(); n != 2 {
			s.Errorf("the session has %d processes", n)
		}
		s.CloseStdin(p.ID)
		s.AwaitClosed(p.ID)
		harness.Eventually(s, "there is space", func() bool {
			_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Program("sleep"), harness.WithID("third")).GetProcess())
			return err == nil
		})
		s.Session = ""
		s.Start(harness.Program("sleep")) // other sessions have their own
	})
}

// The memory that processes may retain is bounded. Records of closed processes without an
// owner are evicted.
func TestLimit_RetainedOutput(t *testing.T) {
	tight := func(cfg *config.Config) { cfg.RetainedOutput, cfg.RetainedTotal = 24<<20, 64<<20 }
	harness.WithConfig(t, tight, func(s *harness.Scenario) {
		s.AwaitClosed(s.Start(harness.Program("flood", "-bytes", fmt.Sprint(30<<20)), harness.WithID("old")))
		for _, name := range []string{"first", "second"} {
			harness.Eventually(s, "there is space", func() bool {
				_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Program("sleep"), harness.WithID(name)).GetProcess())
				return err == nil
			})
		}
		harness.ExpectUnseen(s, "old")
		_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Shell("exit 0")).GetProcess())
		s.ExpectReason(err, "RETAINED_OUTPUT_FULL")
		if limit := harness.MetadataOf(err)["limit_bytes"]; limit != fmt.Sprint(64<<20) {
			s.Errorf("the reported limit is %q", limit)
		}
		s.Terminate("first", harness.Forced)
		s.AwaitClosed("first")
		harness.Eventually(s, "there is space", func() bool {
			_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Program("sleep"), harness.WithID("third")).GetProcess())
			return err == nil
		})
	})
}

// The limits are reported as configured.
func TestLimits_AreInTheEnvironment(t *testing.T) {
	odd := func(cfg *config.Config) {
		cfg.Processes, cfg.Sessions, cfg.RetainedTotal, cfg.Streams, cfg.HeaderList = 11, 12, 64<<20+13, 15, 8<<10+16
		cfg.SessionsTotal = 17
	}
	harness.WithConfig(t, odd, func(s *harness.Scenario) {
		response, err := execwirev1.NewEnvironmentServiceClient(s.Conn).GetEnvironment(s.Ctx, &execwirev1.GetEnvironmentRequest{})
		if err != nil {
			s.Fatal(err)
		}
		l := response.GetLimits()
		got := fmt.Sprint(l.GetProcessesPerSession(), l.GetSessionsPerPrincipal(), l.GetRetainedOutputBytesTotal(), l.GetStreamsPerConnection(), l.GetHeaderListBytes(), l.GetSessionsTotal())
		if want := fmt.Sprint(11, 12, 64<<20+13, 15, 8<<10+16, 17); got != want {
			s.Errorf("the limits are %s, want %s", got, want)
		}
	})
}

// While one process floods and the output of another is not acknowledged, all others are
// delivered.
func TestFeed_ManyProcesses_IsFair(t *testing.T) {
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		a := s.Lease()
		stuck := runAttached(a, harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))
		stuck.Silent = true
		window := int(a.Response.GetOutputWindowBytes())
		for len(stuck.Output[harness.StdoutOf]) < window/2 {
			stuck.Step()
		}
		flood := runAttached(a, harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<50))) // has no end
		flood.Step()
		var echoes []*harness.Feed
		for range 10 {
			echoes = append(echoes, runAttached(a, harness.Program("echo"), harness.WithStdin))
		}
		for i, echo := range echoes {
			flood.Step()
			said := fmt.Sprint("hello ", i)
			s.Write(echo.ID, said)
			alongside(a, flood, func() bool { return len(echo.Waiting) > 0 })
			echo.ExpectOutput(harness.StdoutOf, said)
		}
		if got := len(stuck.Output[harness.StdoutOf]); got > window {
			s.Errorf("received %d bytes of a process without acknowledgement, the window is %d", got, window)
		}
		if exit := s.Get(stuck.ID).GetExit(); exit != nil {
			s.Errorf("a process without a reader ended with %v", exit)
		}
		s.Terminate(flood.ID, harness.Forced)
		stuck.Silent = false
		acknowledge(a, stuck.ID, stuck.Last)
		stuck.ExpectPattern(harness.StdoutOf, testproc.StdoutPattern, harness.FloodBytes)
	})
}

// alongside receives and drops the flood's output until a condition holds.
func alongside(a *harness.Attached, flood *harness.Feed, holds func() bool) {
	a.Scenario.Helper()
	for !holds() {
		flood.Step()
		flood.Output[harness.StdoutOf] = nil
	}
}

// Processes that all have more output than fits into a message are delivered in turn, one
// message each.
func TestFeed_ManyProcesses_Alternates(t *testing.T) {
	const (
		floods = 3
		spoken = 600 << 10           // most of a window, of which a quarter is for stderr
		each   = spoken / (64 << 10) // messages, which within the program are twice as large
	)
	harness.OverTransports(t, func(s *harness.Scenario) {
		a := s.Lease(harness.WithLeaseGrace(harness.StepTimeout))
		detach(a)
		left := map[string]int{}
		for range floods { // while nothing is attached, so that all are ready afterwards
			left[s.Start(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)))] = spoken
		}
		for id := range left {
			harness.Eventually(s, "it has used up its window", func() bool { return outputBytes(s, id) > spoken })
		}
		again(a)
		for !slices.Contains(slices.Collect(maps.Values(left)), 0) {
			if err := next(a); err != nil {
				s.Fatal(err)
			}
			id := a.Got[len(a.Got)-1]
			f := receiveFrom(a, id)
			for _, event := range f.Waiting {
				left[id] = max(0, left[id]-len(event.GetOutput().GetData()))
			}
			f.Waiting = nil
		}
		for i, id := range a.Got {
			if turn := a.Got[i%floods]; id != turn {
				s.Fatalf("message %d is of %s, whose turn it is not: %v", i, id, a.Got)
			}
		}
		if len(a.Feeds) != floods || len(a.Got) < (floods-1)*each {
			s.Errorf("%d messages of %d processes show little", len(a.Got), len(a.Feeds))
		}
		closeSession(s, s.Session)
	})
}

// spoken returns how much a process has written on stdout.
func outputBytes(s *harness.Scenario, id string) uint64 {
	s.Helper()
	snapshot, err := s.Processes.SnapshotOutput(s.Ctx, &execwirev1.SnapshotOutputRequest{SessionId: s.Session, ProcessId: id})
	if err != nil {
		s.Fatal(err)
	}
	return snapshot.GetStreams()[0].GetTotalBytes()
}

// For a client that reads and acknowledges nothing, the server retains one window of each
// process.
func TestFeed_WindowPerProcess(t *testing.T) {
	testrace.MeasuresMemory(t)
	const processes = 40
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		a := s.Lease()
		before := heap()
		var ids []string
		for range processes {
			ids = append(ids, s.Start(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes))))
		}
		for _, id := range ids {
			harness.Eventually(s, "the window is used up", func() bool {
				return s.Get(id).GetLastSeq() > 0
			})
		}
		s.ExpectRunning(ids[0])
		if grown := heap() - before; grown > processes*(256<<10)+8<<20 {
			s.Errorf("%d processes without a reader use %d KiB", processes, grown>>10)
		}
		for _, id := range ids {
			if exit := s.Get(id).GetExit(); exit != nil {
				s.Errorf("process %s ended with %v", id, exit)
			}
		}
		a.Leave(harness.ErrDisconnect)
		closeSession(s, s.Session)
	})
}
