package process

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/procfs"
)

// No kill waits for a start that hangs, nor kills its child.
func TestTerminate_HangingStart_IsNotDelayed(t *testing.T) {
	s := killSetup{adopt: true}.supervisor(t)
	fork := tracker.forks.begin()
	defer tracker.forks.end(fork)
	time.Sleep(2 * procfs.Tick) // later forks may belong to the start
	for range 5 {
		h := newHostileTree(t, "session", "child")
		terminate(t, h.startReady(s), Termination{})
		h.wantAllDead("after the termination")
	}
}

// Processes that were only stopped so far are killed when the job gives up.
func TestKillJob_GivesUp_KillsStoppedProcesses(t *testing.T) {
	h := newHostileTree(t, "session", "daemon")
	s := killSetup{adopt: true}.supervisor(t)
	p := h.startReady(s)
	job := &killJob{process: p, forced: true, sentTerm: map[procfs.ID]bool{}}
	snap := snapshot{forced: true, now: time.Now()}
	for _, member := range h.alive() {
		stat, err := procfs.ReadStat(member.PID)
		if err != nil {
			t.Fatal(err)
		}
		snap.members = append(snap.members, stat)
	}
	if _, done := job.step(snap); done || len(job.pidfds.fds) != len(snap.members) {
		t.Fatalf("after the first step: done %v, pidfds %v", done, job.pidfds.fds)
	}
	snap.now = snap.now.Add(2 * killTimeout)
	if _, done := job.step(snap); !done || job.result.empty || job.result.verified {
		t.Errorf("it gives up: %v, with %+v", done, job.result)
	}
	poll(t, "the end of the stopped processes", func() bool { return len(h.alive()) == 0 })
}

// A leader that was stopped before the scan has no new children to stop.
func TestKillJob_LeaderStopped_IsKilledInFirstStep(t *testing.T) {
	p := start(t, shell("exec sleep 1000"))
	leader, err := procfs.ReadStat(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	job := &killJob{process: p, forced: true, leaderStopped: true}
	if _, done := job.step(snapshot{members: []procfs.Stat{leader}, wasAlive: true, forced: true, now: time.Now()}); done || !job.killed {
		t.Errorf("after the first step: done %v, killed %v", done, job.killed)
	}
	awaitKilled(job)
	waitClosed(t, p)
}

func TestKillJob_Verified(t *testing.T) {
	p := start(t, shell("exit 0"))
	waitClosed(t, p)
	began := time.Now()
	for name, test := range map[string]struct {
		seen           snapshot
		later          time.Duration
		done, verified bool
	}{
		"empty":                    {seen: snapshot{orphansSeen: true, forced: true}, done: true, verified: true},
		"orphans not visible":      {seen: snapshot{forced: true, maybeUnseen: true}, done: true},
		"maybe unseen":             {seen: snapshot{orphansSeen: true, forced: true, maybeUnseen: true}},
		"maybe unseen for long":    {seen: snapshot{orphansSeen: true, forced: true, maybeUnseen: true}, later: uncertaintyTimeout, done: true},
		"unseen to be killed":      {seen: snapshot{orphansSeen: true, forced: true, maybeUnseen: true, mustKillUnseen: true}},
		"unseen for long":          {seen: snapshot{orphansSeen: true, forced: true, maybeUnseen: true, mustKillUnseen: true}, later: uncertaintyTimeout},
		"unseen until killTimeout": {seen: snapshot{orphansSeen: true, forced: true, maybeUnseen: true, mustKillUnseen: true}, later: 2 * killTimeout, done: true},
		"unseen while graceful":    {seen: snapshot{orphansSeen: true, maybeUnseen: true, mustKillUnseen: true}},
		"leader ended now":         {seen: snapshot{orphansSeen: true, forced: true, wasAlive: true}},
		"leader ended for long":    {seen: snapshot{orphansSeen: true, forced: true, wasAlive: true}, later: uncertaintyTimeout},
		"leader until killTimeout": {seen: snapshot{orphansSeen: true, forced: true, wasAlive: true}, later: 2 * killTimeout, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			job := &killJob{process: p, sentTerm: map[procfs.ID]bool{}}
			test.seen.now = began
			_, done := job.step(test.seen)
			if test.later > 0 {
				test.seen.now = began.Add(test.later)
				_, done = job.step(test.seen)
			}
			if done != test.done || job.result.verified != test.verified || done != job.result.empty {
				t.Errorf("done: %v, %+v", done, job.result)
			}
		})
	}
}
