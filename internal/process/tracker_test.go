package process

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/procfs"
)

// scansBegun returns the number of scans so far.
func scansBegun() uint64 {
	tracker.mu.Lock()
	defer tracker.mu.Unlock()
	return tracker.scansBegun
}

func TestTracker_ManyKillsShareScans(t *testing.T) {
	const count = 100
	s := killSetup{adopt: true}.supervisor(t)
	for range count {
		p, err := s.Start(testContext(t), shell("setsid sleep 1000 & exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { waitClosed(t, p) })
	}
	before := scansBegun()
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if scans := scansBegun() - before; scans > count/2 {
		t.Errorf("%d scans to kill %d processes", scans, count)
	}
}

// On a machine with many processes waiting for a few of them does not keep a CPU busy.
func TestTracker_SlowScansAreLessFrequent(t *testing.T) {
	p := start(t, shell("exit 0"))
	waitClosed(t, p)
	absent := procfs.Stat{PID: 1 << 30, Start: 1}
	snap := snapshot{members: []procfs.Stat{absent}, orphansSeen: true, now: time.Now()}
	tracker := &processTracker{scanCost: time.Minute}
	job := &killJob{process: p, sentTerm: map[procfs.ID]bool{}}
	tracker.stepJob(job, snap)
	if wait := time.Until(job.nextStep); wait < gracefulPollShare*tracker.scanCost/2 {
		t.Errorf("the next scan is in %v after one of %v", wait, tracker.scanCost)
	}
	job.forced = true
	tracker.stepJob(job, snap)
	if wait := time.Until(job.nextStep); wait > killTimeout {
		t.Errorf("a kill waits for %v", wait)
	}
}

func TestTracker_Idle_DoesNotScan(t *testing.T) {
	leakcheck.Check(t)
	s := killSetup{adopt: true}.supervisor(t)
	if _, record := runOn(t, s, shell("exit 3")); record.Code != 3 {
		t.Errorf("%+v", record)
	}
	p, err := s.Start(testContext(t), shell("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the last scan", func() bool {
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		return tracker.orphanCheckAt.IsZero() && len(tracker.jobs) == 0 && len(tracker.roots) == 1
	})
	before := scansBegun()
	select { // long enough for another scan
	case <-p.Exited():
		t.Error("it exited")
	case <-time.After(2 * minOrphanCheckDelay):
	}
	if scans := scansBegun() - before; scans > 0 {
		t.Errorf("%d scans, although nothing had changed", scans)
	}
}

// A process that ends during a scan may have forked one that the scan missed.
func TestTerminate_VerifiedOnlyByScanAfterExit(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	job := &killJob{process: p, sentTerm: map[procfs.ID]bool{}, done: make(chan struct{})}
	tracker := &processTracker{adopters: 1, jobs: map[*killJob]struct{}{job: {}}} // its scans find no process, not even the leader
	step := func() (done bool) {
		job.nextStep = pastDeadline
		tracker.runDue()
		return len(tracker.jobs) == 0
	}
	p.supervisor.add(oneJob) // until the termination is done
	if step() {
		t.Fatalf("done by a list from before the exit: %+v", job.result)
	}
	waitClosed(t, p) // it was sent SIGTERM
	if !step() || !job.result.empty || !job.result.verified {
		t.Errorf("not done after the exit, or not verified: %+v", job.result)
	}
}

// Descendants outside of the process group get SIGTERM only from a step with a scan.
func TestTracker_GracefulJobWithoutScan_TakesAnotherStep(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	tracker := &processTracker{}
	job := &killJob{process: p, sentTerm: map[procfs.ID]bool{}, groupSentTerm: true} // p keeps running
	tracker.stepJob(job, snapshot{scanErr: unix.EMFILE, now: time.Now()})
	if job.nextStep.IsZero() {
		t.Error("it waits for the exit")
	}
}

// A scan that was under way when the last supervisor closed may have found a child of the rest of the
// program.
func TestTracker_ReapsOnlyWhileASupervisorAdopts(t *testing.T) {
	for adopters, wantReaped := range []bool{false, true} {
		child := exec.Command("/bin/true")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if err := waitID(unix.P_PID, child.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			t.Fatal(err)
		}
		tracker := &processTracker{adopters: adopters}
		tracker.reap(child.Process.Pid)
		if err := child.Wait(); (err != nil) != wantReaped {
			t.Errorf("with %d adopters: Wait: %v", adopters, err)
		}
	}
}

// A scan that began before a process closed may have missed its descendants.
func TestLeaveDescendants_ScanFromBeforeTheClose_DoesNotRelease(t *testing.T) {
	p := start(t, shell("exit 0"))
	waitClosed(t, p)
	tracker := &processTracker{rootTable: rootTable{roots: map[*trackedRoot]*Process{p.root: p}}, scansBegun: 7, running: true, wake: notify.NewSignal()}
	before := scanResult{number: tracker.scansBegun, attribution: &attribution{}}
	tracker.leaveRunning(p)
	if empty, _ := tracker.dropEmptyRoots(before); len(empty) > 0 {
		t.Error("it has no descendants according to a scan from before")
	}
	after := scanResult{number: tracker.scansBegun + 1, attribution: &attribution{}}
	if empty, _ := tracker.dropEmptyRoots(after); len(empty) != 1 || empty[0] != p {
		t.Errorf("a later scan finds %v without descendants", empty)
	}
}
