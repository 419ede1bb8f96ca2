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
	"github.com/execwire/execwire/internal/testrace"
)

// soakTime is how long all attacks run concurrently: seconds, unless EXECWIRE_SOAK_DURATION is
// set.
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

// soakRounds is the time in which a neighbour completes at least one round of its work. Measured
// rounds are far faster.
const soakRounds = time.Minute

// unchecked is the attackers' view of a soak. Concurrent attacks displace each other, so an
// attack may not reach its goal; only the neighbour's responses count.
type unchecked struct{ testing.TB }

func (u unchecked) Error(...any)          {}
func (u unchecked) Errorf(string, ...any) {}
func (u unchecked) Fatal(...any)          { runtime.Goexit() }
func (u unchecked) Fatalf(string, ...any) { runtime.Goexit() }
func (u unchecked) Logf(string, ...any)   {}

// beginUntil runs one wave, whose connections are dropped at the end: it may wait for something
// that other attacks prevent.
func (a *attackWave) beginUntil(end time.Time, wave func(*attackWave)) {
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

// TestHostileSoak runs all attacks concurrently for EXECWIRE_SOAK_DURATION, by several
// principals and by processes. Meanwhile a neighbour with a principal of its own works, and
// another one behind a hub. All their responses are right: small and large messages, uploads,
// starts and watches. Afterwards nothing remains, and the memory is within the settings.
func TestHostileSoak(t *testing.T) {
	testrace.WithoutRace(t)
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
				a := &attackWave{TB: unchecked{t}, address: server.Address(harness.WebsocketTransport), header: one.header, scale: scale, before: wave, did: did, end: end}
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
	if peak > most && !testrace.Enabled {
		t.Errorf("the server used %d MiB, want at most %d", peak>>20, most>>20)
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
		t.Errorf("the log is:\n%s", said)
	}
}
