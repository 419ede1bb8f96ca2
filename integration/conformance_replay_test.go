package integration

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
)

// replay sends to a server of ours what a recorded client sent, each message
// after everything the reference had said before it, and compares the answers.
type replay struct {
	testing.TB
	scenario, version string
	address           string
	core              grpc.ClientConnInterface // the core behind the same server
	script            script
	allowed           allowances

	dir      string // ${TMP}
	unique   string // ${N}: in command lines of this replay only
	sessions map[string]string

	events  []transcriptEvent
	talk    []exchanged
	conns   map[string]*rpcClient
	order   []string        // of conns
	settled map[string]bool // what is not waited for any more

	web *recordedWeb // ${UP}; nil if there is none
}

// script is what a scenario does besides talking, and what is said otherwise
// than recorded. Every member may be nil.
type script struct {
	// prepare makes the files the scenario works on.
	prepare func(r *replay)
	// before runs before the message with the index is sent, when what came before
	// it was answered.
	before func(r *replay, index int, text string)
	// after runs when the message with the index was sent.
	after func(r *replay, index int, text string)
	// outputDiffers says that processes may say less than with the reference.
	outputDiffers bool
	// beforeClose runs before a connection is closed.
	beforeClose func(r *replay)
	// rewrite replaces a message; the recorded text is given.
	rewrite func(index int, text string) string
	// silent names the connection that began, unrecorded, the session ${SESSIONn}.
	silent map[string]string
}

var replays atomic.Int64

// uninitialized are connections that never shake hands; all others do, and
// where the recording does not show it, unrecorded.
var uninitialized = map[string]bool{
	"01_before_initialize a": true, "01_before_initialize b": true, "01_before_initialize c": true,
	"01_batch unini": true,
}

// beginAgain are connections that shook hands, unrecorded, before a recorded
// initialize.
var beginAgain = map[string]bool{"01_method_existence c1": true}

// newReplay prepares a replay against the websocket door of a server.
func newReplay(t testing.TB, version, scenario string, server *server, allowed allowances) *replay {
	t.Helper()
	r := &replay{TB: t, scenario: scenario, version: version, address: server.address(websocketDoor), core: server.core(t), script: scripts[scenario], allowed: allowed,
		dir: shortDir(t), unique: fmt.Sprintf("%d%03d", os.Getpid(), replays.Add(1)%1000),
		sessions: map[string]string{}, conns: map[string]*rpcClient{}, settled: map[string]bool{},
		events: readTranscript(t, version, scenario)}
	r.talk = dialogue(r.events)
	t.Cleanup(func() { makeRemovable(r.dir) })
	return r
}

// absentDescriptor is one that a server does not have: a server of its own has few,
// the one that is here has those of all tests that run.
var absentDescriptor = [2]string{"/proc/self/fd/99", "/proc/self/fd/9999999"}

// places are what transcripts have in place of volatile values, and back.
func (r *replay) places() (write, read *strings.Replacer) {
	pairs := []string{"${TMP}", r.dir, "${TMPNAME}", filepath.Base(r.dir), "${N}", r.unique, absentDescriptor[0], absentDescriptor[1]}
	if r.web != nil {
		pairs = append(pairs, ":${UP}", ":"+r.web.port())
	}
	for name, id := range r.sessions {
		pairs = append(pairs, name, id)
	}
	var back []string
	for i := 0; i < len(pairs); i += 2 {
		back = append(back, pairs[i+1], pairs[i])
	}
	return strings.NewReplacer(pairs...), strings.NewReplacer(back...)
}

// path is one in the directory of the scenario.
func (r *replay) path(name string) string { return filepath.Join(r.dir, name) }

// run plays the whole conversation.
func (r *replay) run() {
	r.Helper()
	if r.script.prepare != nil {
		r.script.prepare(r)
	}
	index := 0
	for at, e := range r.events {
		if e.Direction != ">" {
			continue
		}
		if e.Kind == "close" && r.script.beforeClose != nil {
			r.script.beforeClose(r)
		}
		r.awaitReplies(at)
		if e.isSend() && r.script.before != nil {
			r.script.before(r, index, string(e.Value))
		}
		r.awaitNews(at)
		switch {
		case e.isSend():
			r.sendRecorded(e, index)
			index++
		case e.Kind == "close":
			r.conn(e.Conn).leave(e)
		case strings.Contains(e.note(), "drops"):
			r.conn(e.Conn).drop()
		}
	}
	r.awaitReplies(len(r.events))
	r.awaitNews(len(r.events))
	for _, name := range r.order {
		r.conns[name].leave(transcriptEvent{Value: json.RawMessage(`"03e8"`)})
	}
}

// leave closes the connection as recorded and waits for its end.
func (c *rpcClient) leave(e transcriptEvent) {
	c.Helper()
	var payload string
	if err := json.Unmarshal(e.Value, &payload); err != nil {
		c.Fatal(err)
	}
	raw, err := hex.DecodeString(payload)
	if err != nil {
		c.Fatal(err)
	}
	// What the reference did not answer, nobody waited for; it is answered by now
	// when this is.
	if c.end() == nil && c.link.send([]byte(`{"id":"last","method":"no/such"}`)) == nil {
		c.settle("the last request is answered", func(frames []rpcFrame) bool { return countReplies(frames, `"last"`) == 1 })
	}
	if c.end() == nil && c.websocket().frame(opClose, true, raw) == nil {
		c.awaitEnd()
	}
	c.drop()
}

// conn is the connection with a name, which it opens the first time.
func (r *replay) conn(name string) *rpcClient {
	r.Helper()
	if c, open := r.conns[name]; open {
		return c
	}
	c := websocketClient(r, r.address)
	if !uninitialized[r.scenario+" "+name] && !r.initializesItself(name) {
		c.send(`{"id":0,"method":"initialize","params":{"clientName":"oracle"}}`)
		c.decodeSession(c.reply(0))
		c.send(`{"method":"initialized","params":{}}`)
		c.mu.Lock()
		c.frames = nil
		c.mu.Unlock()
		for placeholder, who := range r.script.silent {
			if who == name {
				r.sessions[placeholder] = c.session
			}
		}
	}
	r.conns[name] = c
	r.order = append(r.order, name)
	return c
}

// initializesItself tells whether the recording of a connection begins with a
// handshake.
func (r *replay) initializesItself(name string) bool {
	for _, e := range r.events {
		if e.Conn == name && e.isSend() && !beginAgain[r.scenario+" "+name] {
			value, _ := decodeAny(e.Value).(map[string]any)
			_, request := value["id"]
			return request && value["method"] == "initialize"
		}
	}
	return false
}

func (r *replay) sendRecorded(e transcriptEvent, index int) {
	r.Helper()
	c := r.conn(e.Conn)
	if c.end() != nil {
		return
	}
	text := string(e.Value)
	switch {
	case e.Raw != nil:
		text = *e.Raw
	case e.Kind == "binary":
		data, err := hex.DecodeString(e.Hex)
		if err != nil {
			r.Fatal(err)
		}
		_ = c.websocket().frame(opBinary, true, data)
		return
	}
	if r.script.rewrite != nil {
		text = r.script.rewrite(index, text)
	}
	write, _ := r.places()
	// A server that closes the connection may do so while we write.
	_ = c.link.send([]byte(write.Replace(restoreCut(text))))
	if r.script.after != nil {
		r.script.after(r, index, text)
	}
}
