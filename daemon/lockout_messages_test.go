package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
)

// Sizes of what fills a small budget for messages.
const (
	smallBudget    = 2 << 20
	neighbourBytes = 300 << 10
)

// openForTwo serves the principals attacker and neighbour over websockets.
func openForTwo(t *testing.T, change func(*config.Config)) *opened {
	l := &locked{t: t, dir: t.TempDir()}
	table := l.writeTable(l.principal("attacker", `"all"`) + l.principal("neighbour", `"all"`))
	return open(t, func(cfg *config.Config) {
		cfg.Principals = table
		change(cfg)
	})
}

// smallMessages makes the budget for messages small.
func smallMessages(cfg *config.Config) { cfg.Request, cfg.IncomingTotal = smallBudget/2, smallBudget }

// leaveUnfinished begins a message of so many bytes on a new connection and does
// not end it. The server may end the connection.
func (o *opened) leaveUnfinished(header http.Header, bytes int) {
	o.t.Helper()
	c, err := o.dial(wsconn.DialOptions{Header: header})
	if err != nil {
		o.t.Fatal(err)
	}
	o.discard(c)
	w, _ := c.conn.Begin()
	if _, err := w.Write(make([]byte, bytes)); err != nil {
		return
	}
	_ = c.conn.Prove(o.ctx) // it has come, or the connection has ended
}

// discard receives what comes on a connection until it or the test ends.
func (o *opened) discard(c *rpc) {
	var receiving sync.WaitGroup
	receiving.Go(func() {
		for {
			if _, err := c.conn.Receive(); err != nil {
				return
			}
		}
	})
	o.t.Cleanup(func() {
		_ = c.conn.Close(0, "")
		receiving.Wait()
	})
}

// sendsLarge wants requests of a neighbour to be answered, each of neighbourBytes.
func (o *opened) sendsLarge(header http.Header) {
	o.t.Helper()
	c := o.meet(header)
	for range 2 {
		answer := c.ask("environment/status", map[string]any{"padding": strings.Repeat("x", neighbourBytes)})
		if answer["result"] == nil {
			o.t.Errorf("a neighbour's large request was answered %v", answer)
		}
	}
	_ = c.conn.Close(wsconn.CodeNormal, "")
}

// wholeBudget waits until the budget for messages holds nothing: a message that
// takes all of it is received.
func (o *opened) wholeBudget(header http.Header) {
	o.t.Helper()
	const most = smallBudget/2 - 1<<10
	answer := o.meet(header).ask("environment/status", map[string]any{"padding": strings.Repeat("x", most)})
	if answer["result"] == nil {
		o.t.Errorf("after the attack the largest request is answered %v", answer)
	}
}

// Unfinished messages of one principal, on however many connections, do not keep
// large messages of another from being received.
func TestUnfinishedMessages_OfAnotherPrincipal_DoNotLockOut(t *testing.T) {
	for _, bytes := range []int{70 << 10, 300 << 10, 700 << 10} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			o := openForTwo(t, smallMessages)
			for range smallBudget/bytes + 4 {
				o.leaveUnfinished(bearing(tokenOf("attacker")), bytes)
			}
			o.sendsLarge(bearing(tokenOf("neighbour")))
		})
	}
}

// Where all clients are one principal, those of its connections give way that
// hold more than the others and are the slowest.
func TestUnfinishedMessages_OfTheSamePrincipal_DoNotLockOut(t *testing.T) {
	o := open(t, smallMessages)
	for range 6 {
		o.leaveUnfinished(nil, 700<<10)
	}
	o.sendsLarge(nil)
}

// Requests that are never answered are like messages that never end.
func TestUnansweredRequests_DoNotLockOut(t *testing.T) {
	o := openForTwo(t, func(cfg *config.Config) {
		smallMessages(cfg)
		cfg.StdinQueue, cfg.StdinWrite = 128<<10, 128<<10
	})
	for range 4 {
		c := o.meet(bearing(tokenOf("attacker")))
		c.ask("process/start", map[string]any{
			"processId": "p", "argv": []string{"/bin/sh", "-c", "exec sleep 1000"}, "cwd": "/", "env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": true,
		})
		o.discard(c)
		write := fmt.Sprintf(`{"id":9,"method":"process/write","params":{"processId":"p","chunk":%q}}`, strings.Repeat("AAAA", 25<<10))
		for range 8 {
			if c.conn.Send([]byte(write)) != nil {
				break // it gave way
			}
		}
		_ = c.conn.Prove(o.ctx)
	}
	o.sendsLarge(bearing(tokenOf("neighbour")))
}

// A connection that gave way learns which limit was reached, and that it may come
// again.
func TestUnfinishedMessage_GivesWay_WithTheNameOfTheLimit(t *testing.T) {
	o := openForTwo(t, func(cfg *config.Config) { cfg.Request, cfg.IncomingTotal = 256<<10, 512<<10 })
	heavy, err := o.dial(wsconn.DialOptions{Header: bearing(tokenOf("attacker"))})
	if err != nil {
		t.Fatal(err)
	}
	w, err := heavy.conn.Begin()
	if err == nil {
		_, err = w.Write(make([]byte, 200<<10))
	}
	if err != nil {
		t.Fatal(err)
	}
	var receiving sync.WaitGroup
	receiving.Go(func() { heavy.expectClosed(1013) })
	if err := heavy.conn.Prove(o.ctx); err != nil { // it has come before the others, and is evicted first
		t.Fatal(err)
	}
	for range 3 { // more than fit beside it
		o.leaveUnfinished(bearing(tokenOf("attacker")), 200<<10)
	}
	c := o.meet(bearing(tokenOf("neighbour")))
	c.ask("environment/status", map[string]any{"padding": strings.Repeat("x", 200<<10)})
	receiving.Wait()
	if told := strings.Join(heavy.told, ""); !strings.Contains(told, "incoming_bytes_total") {
		t.Errorf("the connection that gave way was told %q", told)
	}
}

// After an attack nothing of it is left.
func TestUnfinishedMessages_LeaveNothing(t *testing.T) {
	o := openForTwo(t, smallMessages)
	t.Run("attack", func(t *testing.T) {
		attacked := *o
		attacked.t = t
		for range 10 {
			attacked.leaveUnfinished(bearing(tokenOf("attacker")), 300<<10)
		}
		attacked.sendsLarge(bearing(tokenOf("neighbour")))
	})
	o.wholeBudget(bearing(tokenOf("attacker")))
}
