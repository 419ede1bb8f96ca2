package conformance

import (
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"strings"
	"time"
)

// awaitReplies waits until our server has sent the responses that the reference had sent before
// the event.
func (r *replay) awaitReplies(at int) {
	r.Helper()
	replies := map[string]int{}
	for _, m := range r.talk {
		if m.replyAt < 0 || m.replyAt >= at {
			continue
		}
		key := m.conn + " " + m.id
		replies[key]++
		r.await(m.conn, fmt.Sprintf("answer %d to %s", replies[key], m.id), func(frames []harness.RPCFrame) bool {
			return harness.CountReplies(frames, m.id) >= replies[key]
		})
		r.learnSession(m)
	}
}

// awaitEvents waits until our server has sent the process notifications that the reference had
// sent before the event.
func (r *replay) awaitEvents(at int) {
	r.Helper()
	for name, seen := range r.eventsBefore(at) {
		conn, process, _ := strings.Cut(name, " ")
		if r.notStarted(conn, process) {
			continue
		}
		for what, size := range seen {
			if what == "process/output" && (seen["process/closed"] > 0 || r.script.outputDiffers) {
				size = min(size, 1)
			}
			r.await(conn, fmt.Sprintf("%s of %q (%d)", what, process, size), func(frames []harness.RPCFrame) bool {
				return amountOf(frames, process, what) >= size
			})
		}
	}
}

// await waits for a condition on a connection, once.
func (r *replay) await(conn, what string, holds func([]harness.RPCFrame) bool) {
	r.Helper()
	c := r.conns[conn]
	if c == nil || r.settled[conn+what] {
		return
	}
	deadline := time.Now().Add(harness.StepTimeout)
	for {
		c.Mu.Lock()
		held, ended, changed := holds(c.Frames), c.Ended, c.Changed
		c.Mu.Unlock()
		if held || ended != nil {
			r.settled[conn+what] = true
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			r.settled[conn+what] = true
			r.Errorf("on connection %s there is no %s; the server sent:\n%s", conn, what, c.LastFrames())
			return
		}
	}
}

// amountOf returns how many bytes of output or how many ends of a process were received.
func amountOf(frames []harness.RPCFrame, process, method string) int {
	n := 0
	for _, e := range harness.EventsOf(frames, process) {
		if e.Method == method {
			n += max(1, len(e.Chunk))
		}
	}
	return n
}

// eventsBefore returns what the reference had reported of processes before an event, by
// connection and process, counted like amountOf.
func (r *replay) eventsBefore(at int) map[string]map[string]int {
	seen := map[string]map[string]int{}
	for _, e := range r.events[:at] {
		news, ok := processEvent(e)
		if !ok {
			continue
		}
		key := e.Conn + " " + news.ProcessID
		if seen[key] == nil {
			seen[key] = map[string]int{}
		}
		seen[key][news.Method] += max(1, len(news.Chunk))
	}
	return seen
}

// processEvent returns the event as a notification about a process. Truncated output has no
// bytes.
func processEvent(e harness.TranscriptEvent) (harness.RPCEvent, bool) {
	if e.Direction != "<" || e.Kind != "text" {
		return harness.RPCEvent{}, false
	}
	f := harness.RPCFrame{Data: cutText.ReplaceAll(e.Value, []byte(`""`))}
	if f.Parse() != nil || f.Event == nil {
		return harness.RPCEvent{}, false
	}
	return *f.Event, true
}

// notStarted reports whether our server rejected the start of a process.
func (r *replay) notStarted(conn, process string) bool {
	for _, m := range r.talk {
		if m.conn != conn || m.replyAt < 0 {
			continue
		}
		var request struct {
			Method string
			Params struct{ ProcessID string }
		}
		if json.Unmarshal(r.events[m.at].Value, &request) != nil || request.Method != "process/start" || request.Params.ProcessID != process {
			continue
		}
		for _, frame := range r.conns[conn].Record() {
			if frame.Error != nil && string(frame.ID) == m.id {
				if reply, _ := m.reply.(map[string]any); reply["error"] == nil {
					return true
				}
			}
		}
	}
	return false
}

// learnSession binds ${SESSIONn} when our server has sent the response in which the reference
// named it.
func (r *replay) learnSession(m exchanged) {
	reply, _ := m.reply.(map[string]any)
	result, _ := reply["result"].(map[string]any)
	placeholder, _ := result["sessionId"].(string)
	if placeholder == "" || r.sessions[placeholder] != "" {
		return
	}
	for _, frame := range r.conns[m.conn].Record() {
		var hello struct{ SessionID string }
		if frame.Method == "" && string(frame.ID) == m.id && json.Unmarshal(frame.Result, &hello) == nil && hello.SessionID != "" {
			r.sessions[placeholder] = hello.SessionID
		}
	}
}
