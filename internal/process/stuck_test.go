package process

import (
	"testing"
	"time"
)

// A start that hangs delays nobody's kill, and nobody is killed for it.
func TestAStartThatHangsDelaysNoKill(t *testing.T) {
	s := strength{adopt: true}.supervisor(t)
	begun := children.beginFork()
	defer children.endFork(begun)
	time.Sleep(2 * tickNanos) // what is forked from now on can be the start's
	began := time.Now()
	const kills = 5
	for range kills {
		h := newTribe(t, "session", "child")
		terminate(t, h.startReady(s), Termination{})
		h.wantExtinct("after the termination")
	}
	if took := time.Since(began); took > kills*time.Second {
		t.Errorf("%d kills took %v", kills, took)
	}
}

// Those who were stopped, to be killed once there are no others, do not stay so when it takes too long.
func TestWhoWasStoppedIsKilledInTheEnd(t *testing.T) {
	h := newTribe(t, "session", "daemon")
	s := strength{adopt: true}.supervisor(t)
	p := h.startReady(s)
	w := &sweep{process: p, forced: true, asked: map[identity]bool{}}
	scene := scene{forced: true, now: time.Now()}
	for _, member := range h.alive() {
		stat, err := readStat(member.PID)
		if err != nil {
			t.Fatal(err)
		}
		scene.members = append(scene.members, stat)
	}
	if _, done := w.step(scene); done || len(w.grip.held) != len(scene.members) {
		t.Fatalf("after the first step it is done: %v, and holds %v", done, w.grip.held)
	}
	scene.now = scene.now.Add(2 * sweepPatience)
	if _, done := w.step(scene); !done || w.result.empty || w.result.verified {
		t.Errorf("it gives up: %v, with %+v", done, w.result)
	}
	poll(t, "the end of those who were stopped", func() bool { return len(h.alive()) == 0 })
}

func TestASweepIsNotSureOfWhatItDoesNotKnow(t *testing.T) {
	p := start(t, shell("exit 0"))
	exit(t, p)
	began := time.Now()
	for name, test := range map[string]struct {
		scene          scene
		later          time.Duration
		done, verified bool
	}{
		"nobody":                 {scene: scene{judged: true, forced: true}, done: true, verified: true},
		"not all can be seen":    {scene: scene{forced: true, riddle: true}, done: true},
		"another may have it":    {scene: scene{judged: true, forced: true, riddle: true}},
		"and still may":          {scene: scene{judged: true, forced: true, riddle: true}, later: riddlePatience, done: true},
		"it has to be killed":    {scene: scene{judged: true, forced: true, riddle: true, unseen: true}},
		"for as long as others":  {scene: scene{judged: true, forced: true, riddle: true, unseen: true}, later: riddlePatience},
		"but not for ever":       {scene: scene{judged: true, forced: true, riddle: true, unseen: true}, later: 2 * sweepPatience, done: true},
		"also when it was asked": {scene: scene{judged: true, riddle: true, unseen: true}},
		"the process ended now":  {scene: scene{judged: true, forced: true, lived: true}},
		"which takes its time":   {scene: scene{judged: true, forced: true, lived: true}, later: riddlePatience},
		"and may have no end":    {scene: scene{judged: true, forced: true, lived: true}, later: 2 * sweepPatience, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &sweep{process: p, asked: map[identity]bool{}}
			test.scene.now = began
			_, done := w.step(test.scene)
			if test.later > 0 {
				test.scene.now = began.Add(test.later)
				_, done = w.step(test.scene)
			}
			if done != test.done || w.result.verified != test.verified || done != w.result.empty {
				t.Errorf("done: %v, %+v", done, w.result)
			}
		})
	}
}
