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

// Message sizes that fill a small budget.
const (
	smallBudget    = 2 << 20
	neighbourBytes = 300 << 10
)

// openForTwo runs a daemon with the principals attacker and neighbour over websockets.
func openForTwo(t *testing.T, change func(*config.Config)) *opened {
	l := &locked{t: t, dir: t.TempDir()}
	table := l.writeTable(l.principal("attacker", `"all"`) + l.principal("neighbour", `"all"`))
	return open(t, func(cfg *config.Config) {
		cfg.Principals = table
		change(cfg)
	})
}

// smallMessages sets a small budget for messages.
func smallMessages(cfg *config.Config) { cfg.Request, cfg.IncomingTotal = smallBudget/2, smallBudget }

// leaveUnfinished sends the beginning of a message, so many bytes, on a new connection. The
// server may close the connection.
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
	_ = c.conn.Prove(o.ctx) // the bytes have arrived, or the connection has ended
}

// discard receives messages until the connection or the test ends.
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

// sendsLarge sends requests of neighbourBytes and expects responses.
func (o *opened) sendsLarge(header http.Header) {
	o.t.Helper()
	c := o.dialSession(header)
	for range 2 {
		answer := c.ask("environment/status", map[string]any{"padding": strings.Repeat("x", neighbourBytes)})
		if answer["result"] == nil {
			o.t.Errorf("a neighbour's large request returned %v", answer)
		}
	}
	_ = c.conn.Close(wsconn.CodeNormal, "")
}

// wholeBudget waits until the budget for messages is free again: a message that needs all
// of it is received.
func (o *opened) wholeBudget(header http.Header) {
	o.t.Helper()
	const most = smallBudget/2 - 1<<10
	answer := o.dialSession(header).ask("environment/status", map[string]any{"padding": strings.Repeat("x", most)})
	if answer["result"] == nil {
		o.t.Errorf("after the attack the largest request returns %v", answer)
	}
}

// Unfinished messages of one principal, on any number of connections, do not prevent
// another one from sending large messages.
func TestUnfinishedMessages_OtherPrincipal_DoNotBlock(t *testing.T) {
	for _, bytes := range []int{70 << 10, 300 << 10, 700 << 10} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			o := openForTwo(t, smallMessages)
			for range smallBudget/bytes + 4 {
				o.leaveUnfinished(bearerHeader(tokenOf("attacker")), bytes)
			}
			o.sendsLarge(bearerHeader(tokenOf("neighbour")))
		})
	}
}

// If all clients are one principal, the connections that use most of the budget and are
// slowest are evicted.
func TestUnfinishedMessages_SamePrincipal_DoNotBlock(t *testing.T) {
	o := open(t, smallMessages)
	for range 6 {
		o.leaveUnfinished(nil, 700<<10)
	}
	o.sendsLarge(nil)
}

// Requests without a response count like unfinished messages.
func TestUnansweredRequests_DoNotBlock(t *testing.T) {
	o := openForTwo(t, func(cfg *config.Config) {
		smallMessages(cfg)
		cfg.StdinQueue, cfg.StdinWrite = 128<<10, 128<<10
	})
	for range 4 {
		c := o.dialSession(bearerHeader(tokenOf("attacker")))
		c.ask("process/start", map[string]any{
			"processId": "p", "argv": []string{"/bin/sh", "-c", "exec sleep 1000"}, "cwd": "/", "env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": true,
		})
		o.discard(c)
		write := fmt.Sprintf(`{"id":9,"method":"process/write","params":{"processId":"p","chunk":%q}}`, strings.Repeat("AAAA", 25<<10))
		for range 8 {
			if c.conn.Send([]byte(write)) != nil {
				break // it was evicted
			}
		}
		_ = c.conn.Prove(o.ctx)
	}
	o.sendsLarge(bearerHeader(tokenOf("neighbour")))
}

// An evicted connection receives the name of the limit and may reconnect.
func TestUnfinishedMessage_Evicted_ReportsLimitName(t *testing.T) {
	o := openForTwo(t, func(cfg *config.Config) { cfg.Request, cfg.IncomingTotal = 256<<10, 512<<10 })
	heavy, err := o.dial(wsconn.DialOptions{Header: bearerHeader(tokenOf("attacker"))})
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
	if err := heavy.conn.Prove(o.ctx); err != nil { // it has arrived before the others, and is evicted first
		t.Fatal(err)
	}
	for range 3 { // more than fit beside it
		o.leaveUnfinished(bearerHeader(tokenOf("attacker")), 200<<10)
	}
	c := o.dialSession(bearerHeader(tokenOf("neighbour")))
	c.ask("environment/status", map[string]any{"padding": strings.Repeat("x", 200<<10)})
	receiving.Wait()
	if notifications := strings.Join(heavy.notifications, ""); !strings.Contains(notifications, "incoming_bytes_total") {
		t.Errorf("the evicted connection received %q", notifications)
	}
}

func TestUnfinishedMessages_AfterAttack_LeaveNothing(t *testing.T) {
	o := openForTwo(t, smallMessages)
	t.Run("attack", func(t *testing.T) {
		attacked := *o
		attacked.t = t
		for range 10 {
			attacked.leaveUnfinished(bearerHeader(tokenOf("attacker")), 300<<10)
		}
		attacked.sendsLarge(bearerHeader(tokenOf("neighbour")))
	})
	o.wholeBudget(bearerHeader(tokenOf("attacker")))
}
