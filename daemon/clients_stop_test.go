package daemon_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
)

// A server that was told to stop lets processes finish and tells their owners; it
// wants nobody new, and says so.
func TestDrainingWithAClientOfJSONRPC(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(hang) })
	c, idle, strange := o.meet(nil), o.meet(nil), o.meet(nil)
	reading := c.ask("process/start", map[string]any{
		"processId": "q", "argv": []string{"/bin/sh", "-c", "read line; echo $line; exit 3"}, "cwd": "/", "env": map[string]string{},
		"tty": false, "pipeStdin": true,
	})
	if reading["result"] == nil {
		t.Fatalf("process/start = %v", reading)
	}
	o.stop(errOver)
	for o.get("/readyz", nil) != http.StatusServiceUnavailable {
		if o.ctx.Err() != nil {
			t.Fatal("/readyz does not tell that the server stops")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := o.get("/healthz", nil); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}
	if _, err := o.dial(wsconn.DialOptions{}); err == nil {
		t.Error("a new client is accepted")
	}
	if answer := strange.start("late", "exit 0"); answer["error"] == nil {
		t.Errorf("a process was started: %v", answer)
	}
	c.ask("process/write", map[string]any{"processId": "q", "chunk": "bGFzdCB3b3Jkcwo=", "writeId": "1"})
	c.expectClosed(wsconn.CodeGoingAway)
	c.expectTold("process/output", `"q"`, `"bGFzdCB3b3Jkcwo="`)
	c.expectTold("process/exited", `"q"`, `"exitCode":3`)
	c.expectTold("process/closed", `"q"`)
	idle.expectClosed(wsconn.CodeGoingAway)
	strange.expectClosed(wsconn.CodeGoingAway)
	<-o.served
}

// What still runs after the grace is ended, and its owner is told before the
// websocket is closed.
func TestTheShutdownGraceOfAClientOfJSONRPC(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(50 * time.Millisecond) })
	c := o.meet(nil)
	silent, err := o.dial(wsconn.DialOptions{}) // has no session
	if err != nil {
		t.Fatal(err)
	}
	c.start("p", "trap '' TERM; echo ready; while :; do sleep 1000; done")
	c.expectTold("process/output", `"cmVhZHkK"`)
	o.stop(errOver)
	c.expectClosed(wsconn.CodeGoingAway)
	c.expectTold("process/exited", `"exitCode":137`)
	c.expectTold("process/closed")
	silent.expectClosed(wsconn.CodeGoingAway)
	<-o.served
}

// A client that does not read does not hold the end of the server up for good. The
// log tells of it, and not of one that had nothing more to be told.
func TestStop_ClientNotReading_IsDisconnected(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	const waiting = 64 << 20 // more than sockets take
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace, cfg.RetainedOutput = 0, waiting })
	c := o.meet(nil)
	written := filepath.Join(t.TempDir(), "written")
	c.start("p", fmt.Sprintf("head -c %d /dev/zero; touch %s; sleep 1000", waiting*3/4, written))
	for _, err := os.Stat(written); err != nil; _, err = os.Stat(written) {
		if o.ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	knock(t, strings.TrimPrefix(o.urls[0], "ws://")) // does not answer the close
	o.stop(errOver)
	select {
	case <-o.served:
	case <-o.ctx.Done():
		t.Fatal("the server does not stop")
	}
	if o.err != nil && !errors.Is(o.err, errOver) {
		t.Errorf("Serve = %v", o.err)
	}
	if log := o.log.String(); !strings.Contains(log, `msg="disconnected clients that did not read the end of their feeds" clients=1 `) {
		t.Errorf("the log: %s", log)
	}
}

// The log of what clients ordinarily do is for those who ask for it: programs that
// start a server with stdio may show it, or not read it.
func TestTheOrdinaryLifeOfAClientIsNotInTheLog(t *testing.T) {
	o := open(t, func(*config.Config) {})
	c, idle := o.meet(nil), o.meet(nil)
	c.start("p", "echo hello")
	c.expectTold("process/closed")
	if err := c.conn.Close(wsconn.CodeNormal, ""); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(o.log.String(), "grpc.method=CloseSession") {
		if o.ctx.Err() != nil {
			t.Fatal("the session is not ended")
		}
		time.Sleep(5 * time.Millisecond)
	}
	o.stop(errOver)
	idle.expectClosed(wsconn.CodeGoingAway)
	<-o.served
	log := o.log.String()
	if strings.Count(log, "grpc.method=AttachSession") != 2 {
		t.Errorf("the log does not have both attachments: %s", log)
	}
	for line := range strings.Lines(log) {
		probe := strings.Contains(line, `msg="a sandbox works"`) // of the server, a moment after its start
		if !probe && !strings.Contains(line, "level=DEBUG") {
			t.Error(line)
		}
	}
}
