package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// awaitReplies waits until our server has answered what the reference had
// answered before the event.
func (r *replay) awaitReplies(at int) {
	r.Helper()
	replies := map[string]int{}
	for _, m := range r.talk {
		if m.replyAt < 0 || m.replyAt >= at {
			continue
		}
		key := m.conn + " " + m.id
		replies[key]++
		r.await(m.conn, fmt.Sprintf("answer %d to %s", replies[key], m.id), func(frames []rpcFrame) bool {
			return countReplies(frames, m.id) >= replies[key]
		})
		r.learnSession(m)
	}
}

// awaitNews waits until our server has told what the reference had told of
// processes before the event.
func (r *replay) awaitNews(at int) {
	r.Helper()
	for name, seen := range r.newsBefore(at) {
		conn, process, _ := strings.Cut(name, " ")
		if r.notStarted(conn, process) {
			continue
		}
		for what, size := range seen {
			if what == "process/output" && (seen["process/closed"] > 0 || r.script.outputDiffers) {
				size = min(size, 1)
			}
			r.await(conn, fmt.Sprintf("%s of %q (%d)", what, process, size), func(frames []rpcFrame) bool {
				return amountOf(frames, process, what) >= size
			})
		}
	}
}

// await waits for one thing on a connection, once.
func (r *replay) await(conn, what string, holds func([]rpcFrame) bool) {
	r.Helper()
	c := r.conns[conn]
	if c == nil || r.settled[conn+what] {
		return
	}
	deadline := time.Now().Add(patience)
	for {
		c.mu.Lock()
		held, ended, changed := holds(c.frames), c.ended, c.changed
		c.mu.Unlock()
		if held || ended != nil {
			r.settled[conn+what] = true
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			r.settled[conn+what] = true
			r.Errorf("on connection %s there is no %s; the server said:\n%s", conn, what, c.said())
			return
		}
	}
}

// countReplies is how many answers have the id, which is in JSON.
func countReplies(frames []rpcFrame, id string) int {
	n := 0
	for _, frame := range frames {
		if frame.kind == "text" && frame.Method == "" && (string(frame.ID) == id || mustJSON(decodeAny(frame.ID)) == id) {
			n++
		}
	}
	return n
}

// amountOf is how many bytes of output or how many ends of a process came.
func amountOf(frames []rpcFrame, process, method string) int {
	n := 0
	for _, e := range eventsOf(frames, process) {
		if e.method == method {
			n += max(1, len(e.Chunk))
		}
	}
	return n
}

// newsBefore is what the reference had said of processes before an event, by
// connection and process, in the measure of amountOf.
func (r *replay) newsBefore(at int) map[string]map[string]int {
	seen := map[string]map[string]int{}
	for _, e := range r.events[:at] {
		news, ok := e.news()
		if !ok {
			continue
		}
		key := e.Conn + " " + news.ProcessID
		if seen[key] == nil {
			seen[key] = map[string]int{}
		}
		seen[key][news.method] += max(1, len(news.Chunk))
	}
	return seen
}

// news is the event as a notification about a process. Output that was cut has
// no bytes.
func (e transcriptEvent) news() (rpcEvent, bool) {
	if e.Direction != "<" || e.Kind != "text" {
		return rpcEvent{}, false
	}
	f := rpcFrame{data: cutText.ReplaceAll(e.Value, []byte(`""`))}
	if f.parse() != nil || f.news == nil {
		return rpcEvent{}, false
	}
	return *f.news, true
}

// notStarted tells whether our server refused to start a process.
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
		for _, frame := range r.conns[conn].record() {
			if frame.Error != nil && string(frame.ID) == m.id {
				if reply, _ := m.reply.(map[string]any); reply["error"] == nil {
					return true
				}
			}
		}
	}
	return false
}

// learnSession binds ${SESSIONn} when our server has answered where the
// reference named it.
func (r *replay) learnSession(m exchanged) {
	reply, _ := m.reply.(map[string]any)
	result, _ := reply["result"].(map[string]any)
	placeholder, _ := result["sessionId"].(string)
	if placeholder == "" || r.sessions[placeholder] != "" {
		return
	}
	for _, frame := range r.conns[m.conn].record() {
		var hello struct{ SessionID string }
		if frame.Method == "" && string(frame.ID) == m.id && json.Unmarshal(frame.Result, &hello) == nil && hello.SessionID != "" {
			r.sessions[placeholder] = hello.SessionID
		}
	}
}
