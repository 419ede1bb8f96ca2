package hostile

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// soakTime is how long all attacks go on at once: seconds, unless
// EXECWIRE_SOAK_DURATION says otherwise.
func soakTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("EXECWIRE_SOAK_DURATION")
	if text == "" {
		return 2 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("EXECWIRE_SOAK_DURATION: %v", err)
	}
	return d
}

// soakRounds is how many rounds of its work a neighbour gets done at least, once in
// this time: far fewer than were seen.
const soakRounds = time.Minute

// unchecked is the attackers' end of a soak. Attacks that go on at once take each
// other's places, so that what one of them wants to see need not come about: only
// the neighbour's answers count.
type unchecked struct{ testing.TB }

func (u unchecked) Error(...any)          {}
func (u unchecked) Errorf(string, ...any) {}
func (u unchecked) Fatal(...any)          { runtime.Goexit() }
func (u unchecked) Fatalf(string, ...any) { runtime.Goexit() }
func (u unchecked) Logf(string, ...any)   {}

// beginUntil runs one wave, whose connections are dropped from end on: it may wait for
// what does not come about beside other attacks.
func (a *assault) beginUntil(end time.Time, wave func(*assault)) {
	over := make(chan struct{})
	var dropping sync.WaitGroup
	dropping.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if time.Now().After(end) {
					a.dropAll()
				}
			case <-over:
				return
			}
		}
	})
	var attacking sync.WaitGroup
	attacking.Go(func() { a.begin(wave) }) // which a Fatal of it may end
	attacking.Wait()
	close(over)
	dropping.Wait()
}

// TestHostileSoak has all attacks go on at once for EXECWIRE_SOAK_DURATION, those of
// several principals and of processes. A neighbour, of a principal of its own, works
// meanwhile, and another one behind a hub: every answer to them is right, of small and
// large messages, streamed uploads, starts and watches. Then nothing is left, in the
// memory that the settings allow.
func TestHostileSoak(t *testing.T) {
	harness.WithoutRace(t)
	harness.Slow(t)
	howLong, scale := soakTime(t), smallScale
	if howLong >= time.Minute {
		scale = benchScale
	}
	server := newSoakServer(t, soakSettings...)
	pid := server.ServerPID(t)
	n := newSoakNeighbour(t, server)
	hub := newSoakHub(t)
	n.round()
	hub.round()
	kernel := harness.ProcStat{Tb: t, Pid: pid}
	harness.Eventually(t, "a control group is kept", func() bool { return len(server.controlGroups(t)) > 0 })
	before, filesBefore := kernel.Descriptors(), server.temporaryFiles(t)

	did := &tally{counts: map[string]int{}}
	end := time.Now().Add(howLong)
	var attacking sync.WaitGroup
	defer attacking.Wait()
	for _, one := range soakAttacks(t, server, howLong < time.Minute) {
		attacking.Go(func() {
			for wave := 0; time.Now().Before(end); wave++ {
				a := &assault{TB: unchecked{t}, address: server.Address(harness.WebsocketTransport), header: one.header, scale: scale, before: wave, did: did, end: end}
				a.beginUntil(end, one.wave)
			}
		})
	}
	hub.attack(&attacking, did, scale, end)
	var throughHub atomic.Int64
	var working sync.WaitGroup
	working.Go(func() {
		for time.Now().Before(end) && !t.Failed() {
			hub.round()
			throughHub.Add(1)
		}
	})
	rounds := 0
	func() {
		defer working.Wait()
		for ; time.Now().Before(end) && !t.Failed(); rounds++ {
			n.round()
		}
	}()
	attacking.Wait()

	t.Logf("%d rounds of the neighbour, %d of the one behind the hub; %s", rounds, throughHub.Load(), n.times())
	if least := 1 + int(howLong/soakRounds); rounds < least || int(throughHub.Load()) < least {
		t.Errorf("the neighbours did fewer than %d rounds", least)
	}
	t.Logf("attacks: %v", did.counts)
	for _, name := range countedAttacks {
		if did.counts[name] == 0 && howLong >= time.Minute {
			t.Errorf("the attackers had no %s", name)
		}
	}
	cfg, err := config.Load("", soakSettings, func(*config.Config) {})
	if err != nil {
		t.Fatal(err)
	}
	most, terms := soakMemory(cfg)
	peak := server.ResidentBytes(t, "VmHWM")
	t.Logf("the server took up to %d MiB of the %d that its settings allow:%s with garbage", peak>>20, most>>20, terms)
	if peak > most && !harness.RaceEnabled {
		t.Errorf("the server took %d MiB, want at most %d", peak>>20, most>>20)
	}
	harness.Eventually(t, "the descriptors of the attacks are closed", func() bool { return kernel.Descriptors() <= before })
	harness.Eventually(t, "the processes of the attacks are gone", func() bool { return len(harness.Descendants(pid)) == 0 })
	harness.Eventually(t, "temporary files are gone", func() bool { return len(server.temporaryFiles(t)) <= len(filesBefore) })
	harness.Eventually(t, "no more control groups are left than are kept for later processes", func() bool {
		return len(server.controlGroups(t)) <= keptControlGroups
	})
	harness.Eventually(t, "abandoned uploads are gone", func() bool {
		names, err := filepath.Glob(filepath.Join(server.dir, "own", "uploads", "*"))
		hidden, errHidden := filepath.Glob(filepath.Join(server.dir, "own", "uploads", ".*"))
		return err == nil && errHidden == nil && !slices.ContainsFunc(append(names, hidden...), func(name string) bool {
			return strings.Contains(name, "execwire")
		})
	})
	n.round()
	hub.round()
	if now := server.ServerPID(t); now != pid {
		t.Errorf("the server is process %d, was %d", now, pid)
	}
	if said := server.Errors.String(); strings.Contains(said, "panic") || strings.Contains(said, "fatal error") {
		t.Errorf("the server says:\n%s", said)
	}
}
