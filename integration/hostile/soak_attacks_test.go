package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// soakAttack is an attack by a principal.
type soakAttack struct {
	wave   func(*attackWave)
	header http.Header
}

// Attacks that are counted. Each must succeed at least once in a soak, which would show nothing
// otherwise.
const (
	unfinishedMessage = "unfinished messages"
	retainedProcess   = "processes with output"
	heldSession       = "sessions held"
	abandonedUpload   = "uploads abandoned"
	stoppedClient     = "clients stopped"
	forkBomb          = "bombs at their bound"
	instancesTaken    = "inotify instances taken"
	watchesTaken      = "epoll watches taken"
	registeredID      = "ids registered at the hub"
	takenStream       = "streams taken at the hub"
	unfinishedFrame   = "unfinished messages at the hub"
)

var countedAttacks = []string{unfinishedMessage, retainedProcess, heldSession, abandonedUpload, stoppedClient, forkBomb, instancesTaken,
	watchesTaken, registeredID, takenStream, unfinishedFrame}

// tally counts the successes of concurrent attacks. The nil tally counts nothing.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (d *tally) add(name string, n int) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[name] += n
}

// soakHold is how long an attacker keeps resources.
const soakHold = time.Second

// hold waits, but not beyond the end.
func (a *attackWave) hold() { time.Sleep(min(soakHold, time.Until(a.end))) }

// soakAttacks are the independent attacks: each of the single attacks, and those that only
// matter beside others or use up system resources. A short soak has every fourth of the former,
// and one principal for most of the latter.
func soakAttacks(t testing.TB, s *soakServer, short bool) (all []soakAttack) {
	principals := soakAttackers
	if short {
		principals = 1
	}
	for i, one := range attacks() {
		if !short || i%4 == 0 {
			all = append(all, soakAttack{wave: one.wave}) // by loopback
		}
	}
	for i := range principals {
		name := fmt.Sprint("attacker-", i)
		header := s.header(t, name)
		all = append(all,
			soakAttack{unfinishedMessages, header},
			soakAttack{retainedProcesses, header},
			soakAttack{heldSessions, header},
			soakAttack{func(a *attackWave) { s.abandonUploads(a, name) }, nil},
		)
	}
	return append(all,
		soakAttack{func(a *attackWave) { s.runAs(a, "attacker-0", soakBomb, forkBomb) }, nil},
		soakAttack{func(a *attackWave) { s.runAs(a, "attacker-1", soakInstances, instancesTaken) }, nil},
		soakAttack{func(a *attackWave) { s.runAs(a, "attacker-2", soakWatches, watchesTaken) }, nil},
		soakAttack{func(a *attackWave) { s.stoppedClients(a, "attacker-3") }, nil},
	)
}

// unfinishedMessages begins large messages, and sends nothing more.
func unfinishedMessages(a *attackWave) {
	part := maskedFrame(harness.OpText, []byte(strings.Repeat(" ", largeBytes)))
	part[0] &^= 0x80 // more is to come
	a.together(a.times(40), func(int) {
		if r, ok := a.attacker(); ok {
			if r.Raw(part) == nil {
				a.did.add(unfinishedMessage, 1)
			}
		}
	})
	a.hold()
}

// retainedProcesses writes output by processes that then wait, in sessions that are retained.
func retainedProcesses(a *attackWave) {
	a.together(a.times(10), func(int) {
		r, ok := a.settled()
		if !ok {
			return
		}
		for i := range 30 {
			text := harness.RequestText(i+1, "process/start", harness.StartOf(fmt.Sprint(i), harness.Shell("head -c 100000 /dev/zero; exec sleep 1000"), nil))
			if err := r.Send([]byte(text)); err != nil {
				return
			}
		}
		if refused, err := r.answers(30); err == nil {
			a.did.add(retainedProcess, 30-refused[-32005])
		}
	})
	a.hold()
}

// heldSessions opens as many sessions as a principal may have, and keeps their connections.
func heldSessions(a *attackWave) {
	a.together(a.times(60), func(int) {
		if _, ok := a.settled(); ok {
			a.did.add(heldSession, 1)
		}
	})
	a.hold()
}

// slowReader gives a part of a file, and then nothing until it ends.
type slowReader struct {
	ctx  context.Context
	left int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		<-r.ctx.Done()
		return 0, context.Cause(r.ctx)
	}
	n := min(len(p), r.left)
	r.left -= n
	return n, nil
}

var errAbandoned = errors.New("the upload is abandoned")

// abandonUploads begins uploads with an id, and does not finish them.
func (s *soakServer) abandonUploads(a *attackWave, principal string) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c, err := client.Dial(ctx, s.URLs[harness.TCPTransport], client.WithTokenFile(s.tokens[principal]))
	if err != nil {
		return
	}
	defer c.Close()
	time.AfterFunc(min(soakHold, time.Until(a.end)), func() { cancel(errAbandoned) })
	a.together(a.times(60), func(i int) {
		path := filepath.Join(s.dir, "own", "uploads", fmt.Sprint(principal, i))
		from := &slowReader{ctx, 200_000}
		_, _ = c.Upload(ctx, path, from, client.UploadOptions{ID: fmt.Sprint(a.before, i)})
		if from.left == 0 {
			a.did.add(abandonedUpload, 1)
		}
	})
}

// Programs that use up system resources, within bounds of their own.
const (
	// soakBomb forks as often as a bound of its own lets it, which is above what
	// its user has, and below what the user of the server may have.
	soakBomb = `import os, resource, time
end = time.monotonic() + 5
resource.setrlimit(resource.RLIMIT_NPROC, (1200, 1200))
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        os.write(1, b"taken\n")
        time.sleep(0.1)`
	// soakInstances takes all inotify instances of its user.
	soakInstances = `import ctypes, time
init = ctypes.CDLL(None).inotify_init
while init() >= 0: pass
print("taken", flush=True)
time.sleep(1000)`
	// soakWatches takes epoll watches, as many as its descriptors let it, which is
	// not all.
	soakWatches = `import select, os, time
files = [os.pipe()[0] for _ in range(100)]
for _ in range(100):
    e = select.epoll()
    files.append(e)
    for f in files[:100]: e.register(f)
print("taken", flush=True)
time.sleep(1000)`
)

// runAs runs a program for a time, confined except for the bomb, and ends it.
func (s *soakServer) runAs(a *attackWave, principal, program, counted string) {
	args := []string{"run", "--server", s.URLs[harness.TCPTransport], "--token-file", s.tokens[principal]}
	if program != soakBomb {
		args = append(args, "--sandbox", "read-only")
	}
	said := s.forATime(a, append(args, "--", "/usr/bin/python3", "-c", program), unix.SIGTERM, 4*soakHold)
	if strings.Contains(said, "taken") {
		a.did.add(counted, 1)
	}
}

// forATime runs the command, signals it after the time and then kills it. It returns the
// beginning of its output.
func (s *soakServer) forATime(a *attackWave, args []string, signal unix.Signal, howLong time.Duration) string {
	cmd := harness.Prepare(exec.Command(harness.Execwire, args...))
	var said bounded
	cmd.Stdout = &said
	if cmd.Start() != nil {
		return ""
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	for !over(ended, 10*time.Millisecond) && said.String() == "" && time.Now().Before(a.end) {
	}
	over(ended, min(howLong, time.Until(a.end)))
	_ = cmd.Process.Signal(signal)
	over(ended, min(soakHold, time.Until(a.end)))
	_ = cmd.Process.Kill()
	<-ended
	return said.String()
}

// over waits for an end for a limited time, and reports whether it came.
func over(ended <-chan struct{}, atMost time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(atMost):
		return false
	}
}

// bounded keeps the beginning of what is written.
type bounded struct {
	mu    sync.Mutex
	begin []byte // guarded by mu
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin = append(b.begin, p[:min(len(p), 1000-len(b.begin))]...)
	return len(p), nil
}

func (b *bounded) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.begin)
}

// stoppedClients are stopped while the server sends them much data, and then killed.
func (s *soakServer) stoppedClients(a *attackWave, principal string) {
	a.together(a.times(10), func(int) {
		args := []string{"run", "--server", s.URLs[harness.TCPTransport], "--token-file", s.tokens[principal], "--", "/bin/sh", "-c", "head -c 100000000 /dev/zero"}
		if s.forATime(a, args, unix.SIGSTOP, 0) != "" {
			a.did.add(stoppedClient, 1)
		}
	})
}
