package process

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

const (
	forSilence = execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT
	forALimit  = execwirev1.ExitCause_EXIT_CAUSE_LIMIT

	openFiles  = execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES
	fileBytes  = execwirev1.LimitedResource_LIMITED_RESOURCE_FILE_BYTES
	cpuSeconds = execwirev1.LimitedResource_LIMITED_RESOURCE_CPU_SECONDS
)

func limited(limits *execwirev1.ProcessLimits) harness.Option {
	return func(r *execwirev1.RunStart) { r.Process.Limits = limits }
}

func resource(r execwirev1.LimitedResource, soft, hard uint64) *execwirev1.ProcessLimits {
	return &execwirev1.ProcessLimits{ResourceLimits: []*execwirev1.ResourceLimit{{Resource: r, Soft: soft, Hard: proto.Uint64(hard)}}}
}

// The limits apply to a process from its first instruction on, and to its descendants.
func TestLimits_AreEnforced(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		limits := resource(openFiles, 50, 60)
		limits.Nice = proto.Int32(3)
		p := s.Run(harness.Shell("ulimit -Sn; ulimit -Hn; nice; sh -c 'ulimit -n'"), limited(limits))
		own := s.Run(harness.Shell("nice"))
		own.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
		var nice int
		if _, err := fmt.Sscan(string(own.Output[harness.StdoutOf]), &nice); err != nil {
			s.Fatal(err)
		}
		p.ExpectOutput(harness.StdoutOf, fmt.Sprintf("50\n60\n%d\n50\n", min(19, nice+3)))
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// The limit that killed a process is the cause of its exit.
func TestLimits_Exceeded_AreTheCause(t *testing.T) {
	harness.Slow(t)
	file := filepath.Join(harness.ShortDir(t), "file")
	s := harness.NewScenario(t, harness.NewServer(t, nil), harness.UnixTransport)
	s.Run(harness.Shell("exec head -c 100000 /dev/zero >"+file), limited(resource(fileBytes, 1000, 1000))).
		ExpectEnd(s, 0, execwirev1.Signal_SIGNAL_XFSZ, forALimit)
	spin := harness.Shell("while :; do :; done")
	s.Run(spin, limited(resource(cpuSeconds, 1, 2))).ExpectEnd(s, 0, execwirev1.Signal_SIGNAL_XCPU, forALimit)
	s.Run(spin, limited(resource(cpuSeconds, 1, 1))).ExpectEnd(s, 0, harness.Sigkill, forALimit)
}

// A process without output is killed.
func TestSilenceLimit_EndsTheProcess(t *testing.T) {
	harness.Waits(t)
	harness.OverTransports(t, func(s *harness.Scenario) {
		limits := &execwirev1.ProcessLimits{NoOutputTimeout: durationpb.New(4 * time.Second)} // the shell has to start within it
		p := s.Run(harness.Shell("echo begun; exec sleep 1000"), limited(limits))
		p.ExpectOutput(harness.StdoutOf, "begun\n")
		p.ExpectEnd(s, 0, harness.Sigkill, forSilence)
	})
}

// A process that is blocked by its owner is not silent, and none of its output is lost.
func TestSilenceLimit_SlowOwner_DoesNotCount(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	harness.WithConfig(t, harness.SmallRetention, func(s *harness.Scenario) {
		const timeout = 3 * time.Second // on a busy machine the process may not get a processor for long
		p := s.Run(harness.Program("flood", "-bytes", fmt.Sprint(harness.FloodBytes)),
			limited(&execwirev1.ProcessLimits{NoOutputTimeout: durationpb.New(timeout)}))
		var last uint64
		for begin := time.Now(); time.Since(begin) < timeout+timeout/2; time.Sleep(timeout / 100) {
			if seq := s.Get(p.ID).GetLastSeq(); seq != last {
				begin, last = time.Now(), seq // it still filled what is between it and its owner
			}
		}
		for len(p.Output[harness.StdoutOf]) < harness.FloodBytes {
			p.Step()
		}
		p.ExpectEnd(s, 0, harness.NoSignal, harness.ByItself)
	})
}

// run has flags for limits, and reports the limit that ended the process.
func TestRun_Limits(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		got := harness.Run(t, nil, append(server.Through(d, "--limit", "open-files=50:60", "--limit", "core-bytes=1KiB:1MiB", "--"),
			harness.Shell("ulimit -Sn; ulimit -Hn; ulimit -Sc")...)...)
		if got.Code != 0 || got.Stdout != "50\n60\n2\n" {
			t.Errorf("through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, append(server.Through(d, "--no-output-timeout", "100ms", "--"), harness.Shell("exec sleep 1000")...)...)
		if got.Code != 124 || !strings.Contains(got.Stderr, "timeout without output") {
			t.Errorf("a silent process through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, append(server.Through(d, "--limit", "open-files=1000000000000", "--"), harness.Shell("true")...)...)
		if got.Code != 125 || !strings.Contains(got.Stderr, "--limit open-files=1000000000000: ") {
			t.Errorf("a limit above the system's through %s: %+v", d, got)
		}
		got = harness.Run(t, nil, append(server.Through(d, "--limit", "cpu-hours=1", "--"), harness.Shell("true")...)...)
		if got.Code != 2 || !strings.Contains(got.Stderr, "cpu-seconds") {
			t.Errorf("a limit on nothing through %s: %+v", d, got)
		}
	}
}
