package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	forSilence = execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT
	forALimit  = execwirev1.ExitCause_EXIT_CAUSE_LIMIT

	openFiles  = execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES
	fileBytes  = execwirev1.LimitedResource_LIMITED_RESOURCE_FILE_BYTES
	cpuSeconds = execwirev1.LimitedResource_LIMITED_RESOURCE_CPU_SECONDS
)

func limited(limits *execwirev1.ProcessLimits) option {
	return func(r *execwirev1.RunStart) { r.Process.Limits = limits }
}

func resource(r execwirev1.LimitedResource, soft, hard uint64) *execwirev1.ProcessLimits {
	return &execwirev1.ProcessLimits{ResourceLimits: []*execwirev1.ResourceLimit{{Resource: r, Soft: soft, Hard: proto.Uint64(hard)}}}
}

// A process has its limits from its first instruction on, and so have its
// descendants.
func TestLimitsAreReal(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		limits := resource(openFiles, 50, 60)
		limits.Nice = proto.Int32(3)
		p := s.run(shell("ulimit -Sn; ulimit -Hn; nice; sh -c 'ulimit -n'"), limited(limits))
		own := s.run(shell("nice"))
		own.expectEnd(s, 0, noSignal, byItself)
		var nice int
		if _, err := fmt.Sscan(string(own.output[stdoutOf]), &nice); err != nil {
			s.Fatal(err)
		}
		p.expectOutput(stdoutOf, fmt.Sprintf("50\n60\n%d\n50\n", min(19, nice+3)))
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

// What a process is killed for is the cause of its end.
func TestExceededLimitsAreTheCause(t *testing.T) {
	slow(t)
	file := filepath.Join(shortDir(t), "file")
	s := newStory(t, newServer(t, nil), unixDoor)
	s.run(shell("exec head -c 100000 /dev/zero >"+file), limited(resource(fileBytes, 1000, 1000))).
		expectEnd(s, 0, execwirev1.Signal_SIGNAL_XFSZ, forALimit)
	spin := shell("while :; do :; done")
	s.run(spin, limited(resource(cpuSeconds, 1, 2))).expectEnd(s, 0, execwirev1.Signal_SIGNAL_XCPU, forALimit)
	s.run(spin, limited(resource(cpuSeconds, 1, 1))).expectEnd(s, 0, sigkill, forALimit)
}

// A process that says nothing is ended.
func TestASilentProcessIsEnded(t *testing.T) {
	atEveryDoor(t, func(s *story) {
		limits := &execwirev1.ProcessLimits{NoOutputTimeout: durationpb.New(200 * time.Millisecond)}
		p := s.run(shell("echo begun; exec sleep 1000"), limited(limits))
		p.expectOutput(stdoutOf, "begun\n")
		p.expectEnd(s, 0, sigkill, forSilence)
	})
}

// One that its owner keeps from saying more is not silent, and nothing of what
// it said is lost.
func TestAProcessWithASlowOwnerIsNotSilent(t *testing.T) {
	slow(t)
	withConfig(t, small, func(s *story) {
		timeout := 500 * time.Millisecond
		p := s.run(program("flood", "-bytes", fmt.Sprint(floodBytes)),
			limited(&execwirev1.ProcessLimits{NoOutputTimeout: durationpb.New(timeout)}))
		var last uint64
		for begin := time.Now(); time.Since(begin) < 3*timeout; time.Sleep(timeout / 20) {
			if seq := s.get(p.id).GetLastSeq(); seq != last {
				begin, last = time.Now(), seq // it still filled what is between it and its owner
			}
		}
		for len(p.output[stdoutOf]) < floodBytes {
			p.step()
		}
		p.expectEnd(s, 0, noSignal, byItself)
	})
}

// run has flags for limits, and says what a process was ended for.
func TestRunLimitsProcesses(t *testing.T) {
	server := serve(t)
	for _, d := range wires {
		got := run(t, nil, append(server.through(d, "--limit", "open-files=50:60", "--limit", "core-bytes=1KiB:1MiB", "--"),
			shell("ulimit -Sn; ulimit -Hn; ulimit -Sc")...)...)
		if got.code != 0 || got.stdout != "50\n60\n2\n" {
			t.Errorf("through %s: %+v", d, got)
		}
		got = run(t, nil, append(server.through(d, "--no-output-timeout", "100ms", "--"), shell("exec sleep 1000")...)...)
		if got.code != 124 || !strings.Contains(got.stderr, "wrote nothing") {
			t.Errorf("a silent process through %s: %+v", d, got)
		}
		got = run(t, nil, append(server.through(d, "--limit", "open-files=1000000000000", "--"), shell("true")...)...)
		if got.code != 125 || !strings.Contains(got.stderr, "limits.resource_limits[0]") {
			t.Errorf("a limit above the system's through %s: %+v", d, got)
		}
		got = run(t, nil, append(server.through(d, "--limit", "cpu-hours=1", "--"), shell("true")...)...)
		if got.code != 2 || !strings.Contains(got.stderr, "cpu-seconds") {
			t.Errorf("a limit on nothing through %s: %+v", d, got)
		}
	}
}
