package gateway

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// acknowledging shakes hands as a client that acknowledges by itself.
func (cl *client) acknowledging(resume string) acknowledgements {
	cl.t.Helper()
	params := map[string]any{"clientName": "test", "acknowledgements": true}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	var result struct{ Acknowledgements acknowledgements }
	cl.decode(cl.must("initialize", params), &result)
	cl.notify("initialized", nil)
	return result.Acknowledgements
}

func TestOnlyAnAcknowledgementAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl := core.connect()
		if window := cl.acknowledging(""); window.WindowBytes != scriptedWindow || window.WindowEvents != scriptedWindow {
			t.Errorf("the windows are %+v", window)
		}
		s.say("p", 1, 2, 3)
		s.last["p"] = 3
		time.Sleep(time.Hour)
		cl.must("process/read", map[string]any{"processId": "p", "afterSeq": 3})
		cl.must("process/read", map[string]any{"processId": "p", "afterSeq": 3})
		time.Sleep(time.Hour)
		expect(t, s, cl, "", 1, 2, 3)
		for _, seq := range []uint64{2, 1, 2} {
			cl.must("process/acknowledge", map[string]any{"processId": "p", "seq": seq})
		}
		expect(t, s, cl, "p 2", 1, 2, 3)
		cl.must("process/acknowledge", map[string]any{"processId": "p", "seq": uint64(1) << 60})
		expect(t, s, cl, "p 2, p 3", 1, 2, 3)
		s.say("p", 4) // which the last one was not about
		time.Sleep(time.Hour)
		expect(t, s, cl, "p 2, p 3", 1, 2, 3, 4)
		cl.must("process/acknowledge", map[string]any{"processId": "other", "seq": 1})
		expect(t, s, cl, "p 2, p 3", 1, 2, 3, 4)
	})
}

// TestAnAcknowledgementMayComeBeforeWhatItIsAboutWasNoted acknowledges what was read of
// a batch that is still being said: nothing else would acknowledge it later.
func TestAnAcknowledgementMayComeBeforeWhatItIsAboutWasNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		served, cl := core.serveHere()
		cl.pipe.capacity = 1
		cl.acknowledging("")
		cl.mu.Lock()
		cl.quota = 2
		cl.mu.Unlock()
		s.say("p", 1, 2, 3, 4)
		expect(t, s, cl, "", 1, 2)
		// Not by a message: the answer would wait for the rest.
		if _, err := (&acknowledgeParams{ProcessID: "p", Seq: 2}).run(t.Context(), &request{connection: served}); err != nil {
			t.Error(err)
		}
		expect(t, s, cl, "p 2", 1, 2)
	})
}

// TestWhatWasReadCanBeAcknowledged acknowledges what an answer said before it came from
// the core as news.
func TestWhatWasReadCanBeAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl := core.connect()
		cl.acknowledging("")
		s.say("p", 1)
		synctest.Wait()
		s.last["p"] = 3
		cl.must("process/read", map[string]any{"processId": "p"})
		cl.must("process/acknowledge", map[string]any{"processId": "p", "seq": 3})
		expect(t, s, cl, "p 1", 1)
		s.say("p", 2, 3)
		time.Sleep(time.Hour)
		expect(t, s, cl, "p 1, p 3", 1, 2, 3)
	})
}

func TestWhatWasMissedStaysUntilItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		s.last["p"] = 2
		cl := core.connect()
		cl.acknowledging("s")
		s.say("p", 1, 2, 3)
		time.Sleep(time.Hour)
		expect(t, s, cl, "", 3)
		cl.must("process/acknowledge", map[string]any{"processId": "p", "seq": 2})
		expect(t, s, cl, "p 2", 3)
	})
}

func TestOnlyWhoAskedForAcknowledgementsAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, core := newScriptedCore(t)
		cl, _ := core.attach("")
		cl.refused("process/acknowledge", map[string]any{"processId": "p", "seq": 1},
			jsonrpc.CodeInvalidRequest, "client must ask for acknowledgements in initialize before using process/acknowledge")
	})
}

// TestAClientThatAcknowledgesIsToldExactly ends a process by a signal: by the code
// alone that could be what it passed to exit.
func TestAClientThatAcknowledgesIsToldExactly(t *testing.T) {
	cl := newCore(t).connect()
	cl.acknowledging("")
	var started struct{ PID, StartedAtMs int64 }
	cl.decode(cl.must("process/start", map[string]any{"processId": "p", "argv": []string{"sh", "-c", "printf ab; printf c >&2; kill -9 $$"},
		"cwd": "/", "env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false}), &started)
	if started.PID == 0 || started.StartedAtMs == 0 {
		t.Errorf("the start was answered with %+v", started)
	}
	cl.event("p", "process/closed")
	var read struct {
		Chunks []struct{ Offset *uint64 }
		Exit   exactExit
		Totals []exactTotal
	}
	raw := cl.must("process/read", map[string]any{"processId": "p"})
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	if read.Exit.Signal == nil || *read.Exit.Signal != 9 || read.Exit.Code != nil || read.Exit.Cause != "exited" || read.Exit.WallTimeUs == nil {
		t.Errorf("the exit is told as %s", raw)
	}
	for _, chunk := range read.Chunks {
		if chunk.Offset == nil || *chunk.Offset != 0 {
			t.Errorf("a chunk has the offset %v: %s", chunk.Offset, raw)
		}
	}
	want := map[string]uint64{"stdout": 2, "stderr": 1}
	for _, total := range read.Totals {
		if want[total.Stream] != total.Bytes {
			t.Errorf("%s has %d bytes", total.Stream, total.Bytes)
		}
		delete(want, total.Stream)
	}
	if len(want) > 0 {
		t.Errorf("there is no total of %v: %s", want, raw)
	}
}
