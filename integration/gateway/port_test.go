package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// portList is the result of port/list and port/watch, and the parameters of port/changed.
type portList struct {
	WatchID               json.RawMessage
	Ports, Closed, Opened []listedPort
	Watching, Ended       bool
	Error                 *harness.RPCError
}

type listedPort struct {
	Address            string
	Port, PID          int
	ProcessID, Program string
}

// portWatch is a watch of a client, which applies its notifications in order.
type portWatch struct {
	*harness.RPCClient
	id      int
	open    []listedPort
	applied int // notifications
	end     *portList
}

func watchPorts(c *harness.RPCClient, id int, process harness.RPCParams) *portWatch {
	c.Helper()
	params := harness.RPCParams{"watchId": id}
	for name, value := range process {
		params[name] = value
	}
	request := c.Post("port/watch", params)
	var began portList
	c.Decode("port/watch", c.Reply(request), &began)
	if !began.Watching {
		c.Fatal("it does not watch")
	}
	return &portWatch{RPCClient: c, id: id, open: began.Ports, applied: harness.ReplyTo(c.Record(), request) + 1}
}

// until applies notifications until holds is true.
func (w *portWatch) until(what string, holds func() bool) {
	w.Helper()
	w.Until(fmt.Sprintf("watch %d: %s", w.id, what), func(frames []harness.RPCFrame) bool {
		for _, f := range frames[w.applied:] {
			w.applied++
			if f.Method == "port/changed" {
				w.apply(f)
			}
			if holds() {
				return true
			}
		}
		return holds()
	})
}

func (w *portWatch) apply(f harness.RPCFrame) {
	var change portList
	if err := json.Unmarshal(f.Params, &change); err != nil {
		w.Fatal(err)
	}
	if string(change.WatchID) != fmt.Sprint(w.id) {
		return
	}
	if w.end != nil {
		w.Errorf("after the end of watch %d came %s", w.id, f.Params)
	}
	for _, p := range change.Closed {
		i := slices.Index(w.open, p)
		if i < 0 {
			w.Errorf("watch %d: %v is closed and was not open", w.id, p)
			continue
		}
		w.open = slices.Delete(w.open, i, i+1)
	}
	for _, p := range change.Opened {
		if slices.Contains(w.open, p) {
			w.Errorf("watch %d: %v is opened twice", w.id, p)
		}
		w.open = append(w.open, p)
	}
	if change.Ended {
		w.end = &change
	}
}

// of returns the only port of a process; nil if there is none.
func (w *portWatch) of(process string) *listedPort {
	i := slices.IndexFunc(w.open, func(p listedPort) bool { return p.ProcessID == process })
	if i < 0 {
		return nil
	}
	return &w.open[i]
}

var withStdin = harness.RPCParams{"pipeStdin": true}

var portToggle = harness.Program("listen-toggle", "127.0.0.1:0")

// Ports of all processes of the session, and of one, are reported in order as they are opened and
// closed, and listed. A watch of one process ends with it.
func TestPorts_OpenedAndClosed_AreReportedInOrder(t *testing.T) {
	server := harness.NewServer(t, nil)
	other := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("", portToggle, withStdin)
	session, one := watchPorts(c, 1, nil), watchPorts(c, 2, harness.RPCParams{"processId": ""})
	c.Start("~child", harness.Program("listen-child", "[::1]:0"), withStdin)
	session.until("a descendant listens", func() bool { return session.of("~child") != nil })
	if p := session.of("~child"); p.Address != "::1" || p.Port == 0 || p.PID == 0 || p.Program == "" {
		t.Errorf("the port is %+v", p)
	}
	for range 3 {
		c.Write("", "\n", "accepted")
		for _, w := range []*portWatch{session, one} {
			w.until("the port is open", func() bool { return w.of("") != nil })
		}
		var all, ofOne, none portList
		c.Result("port/list", nil, &all)
		c.Result("port/list", harness.RPCParams{"processId": ""}, &ofOne)
		other.Result("port/list", harness.RPCParams{}, &none)
		if len(all.Ports) != 2 || !slices.Equal(ofOne.Ports, one.open) || none.Ports == nil || len(none.Ports) != 0 {
			t.Errorf("listed are %v, of one process %v, of another session %v", all.Ports, ofOne.Ports, none.Ports)
		}
		c.Write("", "\n", "accepted")
		for _, w := range []*portWatch{session, one} {
			w.until("the port is closed", func() bool { return w.of("") == nil })
		}
	}
	c.Write("", "\n", "accepted")
	one.until("the port is open again", func() bool { return one.of("") != nil })
	c.Terminate("")
	one.until("the watch ends", func() bool { return one.end != nil })
	if len(one.open) != 0 || one.end.Error != nil {
		t.Errorf("the watch of a closed process ended with %v open, and %+v", one.open, one.end.Error)
	}
	session.until("the port of the closed process is closed", func() bool { return session.of("") == nil })
	if session.of("~child") == nil || session.end != nil {
		t.Error("the watch of the session has ended")
	}
	if again := watchPorts(c, 2, harness.RPCParams{"processId": "~child"}); again.of("~child") == nil {
		t.Error("the id of an ended watch was not free, or the port is missing")
	}
	c.Refused("port/watch", harness.RPCParams{"watchId": 3, "processId": "none"}, -32600)
	c.Refused("port/watch", harness.RPCParams{"watchId": 1}, -32600)
}

// A watch ends with port/unwatch, with its connection, and with its session. Then its id is free,
// and nothing more is sent.
func TestPortWatch_EndsWithCancelConnectionAndSession(t *testing.T) {
	server := harness.NewServer(t, nil)
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	c.Start("p", portToggle, withStdin)
	cancelled, kept := watchPorts(c, 1, nil), watchPorts(c, 2, nil)
	c.Result("port/unwatch", harness.RPCParams{"watchId": 1}, nil)
	before := len(c.Record())
	c.Write("p", "\n", "accepted")
	kept.until("the port is open", func() bool { return kept.of("p") != nil })
	cancelled.until("everything is applied", func() bool { return cancelled.applied >= before })
	if len(cancelled.open) != 0 || cancelled.end != nil {
		t.Errorf("a cancelled watch has %v, %v", cancelled.open, cancelled.end)
	}
	c.Result("port/unwatch", harness.RPCParams{"watchId": 1}, nil)
	if again := watchPorts(c, 1, nil); again.of("p") == nil {
		t.Error("a new watch does not begin with the open port")
	}

	c.Drop()
	resumed := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize(c.Session)
	later := watchPorts(resumed, 7, nil)
	resumed.Write("p", "\n", "accepted")
	later.until("the port is closed", func() bool { return later.of("p") == nil })
	for _, f := range resumed.Record() {
		if f.Method == "port/changed" && !strings.Contains(string(f.Params), `"watchId":7`) {
			t.Errorf("a watch of the lost connection sent %s", f.Params)
		}
	}

	session := execwirev1.NewSessionServiceClient(server.Core(t))
	if _, err := session.CloseSession(harness.Context(t), &execwirev1.CloseSessionRequest{SessionId: c.Session}); err != nil {
		t.Fatal(err)
	}
	resumed.AwaitEnd()
	third := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport))
	third.Refused("initialize", harness.ResumeOf(c.Session), -32600)
}
