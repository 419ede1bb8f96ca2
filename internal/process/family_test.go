package process

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
)

// surveysBegun is how often all processes were listed so far.
func surveysBegun() uint64 {
	children.mu.Lock()
	defer children.mu.Unlock()
	return children.surveys
}

func TestManyAreKilledWithFewLooks(t *testing.T) {
	const count = 100
	s := strength{adopt: true}.supervisor(t)
	for range count {
		p, err := s.Start(testContext(t), shell("setsid sleep 1000 & exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { exit(t, p) })
	}
	before := surveysBegun()
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if looks := surveysBegun() - before; looks > count/2 {
		t.Errorf("%d looks at all processes to kill %d", looks, count)
	}
}

// Where there are many processes, waiting for a few of them does not keep a processor busy.
func TestLooksAreFewerWhereTheyCostMore(t *testing.T) {
	p := start(t, shell("exit 0"))
	exit(t, p)
	nobody := procStat{pid: 1 << 30, start: 1}
	d := &division{members: map[*kin][]procStat{p.kin: {nobody}}}
	f := &family{cost: time.Minute}
	w := &sweep{process: p, asked: map[identity]bool{}}
	f.advance(w, d, true, false)
	if wait := time.Until(w.next); wait < gracefulShare*f.cost/2 {
		t.Errorf("the next look is in %v after one that took %v", wait, f.cost)
	}
	w.forced = true
	f.advance(w, d, true, false)
	if wait := time.Until(w.next); wait > sweepPatience {
		t.Errorf("a kill waits for %v", wait)
	}
}

func TestNobodyLooksWhileNothingChanges(t *testing.T) {
	leakcheck.Check(t)
	s := strength{adopt: true}.supervisor(t)
	if _, record := runOn(t, s, shell("exit 3")); record.Code != 3 {
		t.Errorf("%+v", record)
	}
	p, err := s.Start(testContext(t), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the last look", func() bool {
		children.mu.Lock()
		defer children.mu.Unlock()
		return children.judgeAt.IsZero() && len(children.sweeps) == 0 && len(children.kin) == 1
	})
	before := surveysBegun()
	select { // long enough for a look, if one were to come
	case <-p.Exited():
		t.Error("it exited")
	case <-time.After(2 * minJudgeDelay):
	}
	if looks := surveysBegun() - before; looks > 0 {
		t.Errorf("%d looks, and nothing had changed", looks)
	}
}

// A process that ends while all processes are listed may have forked one meanwhile that is not on the list.
func TestATerminationIsVerifiedOnlyByAListFromAfterTheExit(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	w := &sweep{process: p, asked: map[identity]bool{}, done: make(chan struct{})}
	f := &family{adopts: 1, sweeps: map[*sweep]struct{}{w: {}}} // it finds nobody, not even the process
	look := func() (done bool) {
		w.next = longAgo
		f.round()
		return len(f.sweeps) == 0
	}
	p.supervisor.runs() // until the termination is done
	if look() {
		t.Fatalf("done by a list from before the exit: %+v", w.result)
	}
	exit(t, p) // it was sent SIGTERM
	if !look() || !w.result.empty || !w.result.verified {
		t.Errorf("not done after the exit, or not verified: %+v", w.result)
	}
}
