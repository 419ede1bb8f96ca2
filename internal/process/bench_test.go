package process

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/sandbox"
)

// floor starts a process with the least that it costs in Go: fork, exec and wait, with nothing
// connected.
func floor(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		b.Error(err)
		return
	}
	defer null.Close()
	fd := null.Fd()
	pid, err := syscall.ForkExec("/bin/true", []string{"/bin/true"}, &syscall.ProcAttr{Files: []uintptr{fd, fd, fd}})
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		b.Error(err)
	}
}

var benchSpec = Spec{Argv: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin:/usr/bin"}}

func startToClosed(b *testing.B, s *Supervisor) {
	p, err := s.Start(context.Background(), benchSpec)
	if err != nil {
		b.Error(err)
		return
	}
	<-p.Closed()
}

func BenchmarkFloorForkExecWait(b *testing.B) {
	for b.Loop() {
		floor(b)
	}
}

func BenchmarkStartToClosed(b *testing.B) {
	s := newSupervisor(b, Config{})
	b.ReportAllocs()
	for b.Loop() {
		startToClosed(b, s)
	}
}

// With control groups and adoption, as the server runs.
func BenchmarkStartToClosedAllMethods(b *testing.B) {
	s := killSetup{cgroup: true, adopt: true}.supervisor(b)
	b.ReportAllocs()
	for b.Loop() {
		startToClosed(b, s)
	}
}

// For a program that may only read.
func BenchmarkConfinedStartToClosed(b *testing.B) {
	for _, backend := range []sandbox.Backend{sandbox.Bubblewrap, sandbox.Landlock} {
		b.Run(backend.String(), func(b *testing.B) {
			s, by := killSetup{cgroup: true, adopt: true}.supervisor(b), confinedBy(b, backend)(readOnly)
			b.ReportAllocs()
			for b.Loop() {
				p, err := s.Start(context.Background(), confined(benchSpec, by))
				if err != nil {
					b.Fatal(err)
				}
				<-p.Closed()
			}
		})
	}
}

// inFlight runs f b.N times, 64 at once.
func inFlight(b *testing.B, f func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	b.ResetTimer()
	for range 64 {
		go func() {
			for left.Add(-1) >= 0 {
				f()
			}
			done <- struct{}{}
		}()
	}
	for range 64 {
		<-done
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "spawns/s")
}

func BenchmarkFloorSpawnRate64(b *testing.B) { inFlight(b, func() { floor(b) }) }

func BenchmarkSpawnRate64(b *testing.B) {
	s := newSupervisor(b, Config{})
	inFlight(b, func() { startToClosed(b, s) })
}

func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

const benchOutput = 1 << 30

// reportOutput reports this process's CPU for each GiB.
func reportOutput(b *testing.B, before float64) {
	b.SetBytes(benchOutput)
	b.ReportMetric((cpuSeconds(b)-before)/float64(b.N), "cpu-s/GiB")
}

// BenchmarkOutput moves a GiB from a process to its owner.
func BenchmarkOutput(b *testing.B) {
	s := newSupervisor(b, Config{})
	before := cpuSeconds(b)
	for b.Loop() {
		spec := Spec{Argv: []string{"head", "-c", strconv.Itoa(benchOutput), "/dev/zero"}, Cwd: "/"}
		p, err := s.Start(context.Background(), spec)
		if err != nil {
			b.Fatal(err)
		}
		owner, err := p.Log().Own(0)
		if err != nil {
			b.Fatal(err)
		}
		if total := consumeAll(b, owner); total != benchOutput {
			b.Fatalf("%d bytes", total)
		}
	}
	reportOutput(b, before)
}

func consumeAll(b *testing.B, owner *eventlog.Owner) (total int) {
	for {
		batch, err := owner.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) {
			return total
		} else if err != nil {
			b.Fatal(err)
		}
		for _, event := range batch.Events {
			total += len(event.Data)
		}
		if err := owner.Acknowledge(batch.Events[len(batch.Events)-1].Seq); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTerminalOutput floods a terminal, which nobody reads from the log.
func BenchmarkTerminalOutput(b *testing.B) {
	const bytes = 32 << 20
	s := newSupervisor(b, Config{})
	for name, text := range map[string]string{
		"plain":  "file 1 root root  1234 Nov 29 04:40 some-file-name.go",
		"colour": "\x1b[0m\x1b[01;34msome-directory\x1b[0m  \x1b[01;32msome-program\x1b[0m  a-file",
	} {
		b.Run(name, func(b *testing.B) {
			spec := Spec{Argv: []string{"bash", "-c", `yes "$0" | head -c "$1"`, text, strconv.Itoa(bytes)}, Cwd: "/", Terminal: &WindowSize{}}
			b.SetBytes(bytes)
			for b.Loop() {
				p, err := s.Start(b.Context(), spec)
				if err != nil {
					b.Fatal(err)
				}
				<-p.Closed()
			}
		})
	}
}

// BenchmarkFloorPipe reads a GiB from a pipe into one buffer of 64 KiB.
func BenchmarkFloorPipe(b *testing.B) {
	before := cpuSeconds(b)
	buf := make([]byte, 64<<10)
	for b.Loop() {
		r, w, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		null, err := os.Open("/dev/zero")
		if err != nil {
			b.Fatal(err)
		}
		child, err := os.StartProcess("/usr/bin/head", []string{"head", "-c", strconv.Itoa(benchOutput), "/dev/zero"}, &os.ProcAttr{Files: []*os.File{null, w, w}})
		if err != nil {
			b.Fatal(err)
		}
		_ = w.Close()
		for total := 0; total < benchOutput; {
			n, err := r.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			total += n
		}
		_ = r.Close()
		_ = null.Close()
		if _, err := child.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	reportOutput(b, before)
}
