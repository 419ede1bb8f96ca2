package conformance

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"google.golang.org/grpc"
)

// replay sends the recorded messages of clients to our server, each after everything that the
// reference had sent before it, and compares the responses.
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

	events  []harness.TranscriptEvent
	talk    []exchanged
	conns   map[string]*harness.RPCClient
	order   []string        // of conns
	settled map[string]bool // what is not waited for any more

	web *recordedWeb // ${UP}; nil if there is none
}

// script has the actions of a scenario besides messages, and deviations from the recording.
// Every member may be nil.
type script struct {
	// prepare creates the files of the scenario.
	prepare func(r *replay)
	// before runs before a message is sent, when earlier ones have their responses.
	before func(r *replay, index int, text string)
	// after runs after a message was sent.
	after func(r *replay, index int, text string)
	// outputDiffers permits less output of processes than with the reference.
	outputDiffers bool
	// beforeClose runs before a connection is closed.
	beforeClose func(r *replay)
	// rewrite replaces a message; the recorded text is given.
	rewrite func(index int, text string) string
	// silent names the connection whose unrecorded initialize created ${SESSIONn}.
	silent map[string]string
}

var replays atomic.Int64

// uninitialized are connections that never initialize. All others do, if needed by an
// unrecorded message.
var uninitialized = map[string]bool{
	"01_before_initialize a": true, "01_before_initialize b": true, "01_before_initialize c": true,
	"01_batch unini": true,
}

// beginAgain are connections that initialized, unrecorded, before a recorded initialize.
var beginAgain = map[string]bool{"01_method_existence c1": true}

// newReplay prepares a replay against the websocket listener of a server.
func newReplay(t testing.TB, version, scenario string, server *harness.Server, allowed allowances) *replay {
	t.Helper()
	r := &replay{TB: t, scenario: scenario, version: version, address: server.Address(harness.WebsocketTransport), core: server.Core(t), script: scripts[scenario], allowed: allowed,
		dir: harness.ShortDir(t), unique: fmt.Sprintf("%d%03d", os.Getpid(), replays.Add(1)%1000),
		sessions: map[string]string{}, conns: map[string]*harness.RPCClient{}, settled: map[string]bool{},
		events: readTranscript(t, version, scenario)}
	r.talk = dialogue(r.events)
	t.Cleanup(func() { makeRemovable(r.dir) })
	return r
}

// absentDescriptor is a descriptor that a separate server does not have. The one in this process
// shares the descriptors of all running tests.
var absentDescriptor = [2]string{"/proc/self/fd/99", "/proc/self/fd/9999999"}

// places maps volatile values to the placeholders of transcripts, and back.
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

// path returns a path in the directory of the scenario.
func (r *replay) path(name string) string { return filepath.Join(r.dir, name) }

// run replays the whole conversation.
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
		if isSend(e) && r.script.before != nil {
			r.script.before(r, index, string(e.Value))
		}
		r.awaitEvents(at)
		switch {
		case isSend(e):
			r.sendRecorded(e, index)
			index++
		case e.Kind == "close":
			r.conn(e.Conn).Leave(e)
		case strings.Contains(note(e), "drops"):
			r.conn(e.Conn).Drop()
		}
	}
	r.awaitReplies(len(r.events))
	r.awaitEvents(len(r.events))
	for _, name := range r.order {
		r.conns[name].Leave(harness.TranscriptEvent{Value: json.RawMessage(`"03e8"`)})
	}
}

// conn returns the connection with a name, and opens it the first time.
func (r *replay) conn(name string) *harness.RPCClient {
	r.Helper()
	if c, open := r.conns[name]; open {
		return c
	}
	c := harness.WebsocketClient(r, r.address)
	if !uninitialized[r.scenario+" "+name] && !r.initializesItself(name) {
		c.Send(`{"id":0,"method":"initialize","params":{"clientName":"oracle"}}`)
		c.DecodeSession(c.Reply(0))
		c.Send(`{"method":"initialized","params":{}}`)
		c.Mu.Lock()
		c.Frames = nil
		c.Mu.Unlock()
		for placeholder, who := range r.script.silent {
			if who == name {
				r.sessions[placeholder] = c.Session
			}
		}
	}
	r.conns[name] = c
	r.order = append(r.order, name)
	return c
}

// initializesItself reports whether the recording of a connection begins with initialize.
func (r *replay) initializesItself(name string) bool {
	for _, e := range r.events {
		if e.Conn == name && isSend(e) && !beginAgain[r.scenario+" "+name] {
			value, _ := harness.DecodeAny(e.Value).(map[string]any)
			_, request := value["id"]
			return request && value["method"] == "initialize"
		}
	}
	return false
}

func (r *replay) sendRecorded(e harness.TranscriptEvent, index int) {
	r.Helper()
	c := r.conn(e.Conn)
	if c.End() != nil {
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
		_ = c.Websocket().Frame(harness.OpBinary, true, data)
		return
	}
	if r.script.rewrite != nil {
		text = r.script.rewrite(index, text)
	}
	write, _ := r.places()
	// A server that closes the connection may do so while we write.
	_ = c.Conn.Send([]byte(write.Replace(restoreCut(text))))
	if r.script.after != nil {
		r.script.after(r, index, text)
	}
}
