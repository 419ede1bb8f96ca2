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
	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/internal/wsconn"
)

// A draining server lets processes finish, reports their end to their owners, and accepts
// neither new clients nor new processes.
func TestDrain_JSONRPCClient_ReceivesExit(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(testTimeout) })
	c, idle, newcomer := o.dialSession(nil), o.dialSession(nil), o.dialSession(nil)
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
			t.Fatal("/readyz does not report that the server stops")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := o.get("/healthz", nil); got != http.StatusOK {
		t.Errorf("/healthz = %d", got)
	}
	if _, err := o.dial(wsconn.DialOptions{}); err == nil {
		t.Error("a new client is accepted")
	}
	if answer := newcomer.start("late", "exit 0"); answer["error"] == nil {
		t.Errorf("a process was started: %v", answer)
	}
	c.ask("process/write", map[string]any{"processId": "q", "chunk": "bGFzdCB3b3Jkcwo=", "writeId": "1"})
	c.expectClosed(wsconn.CodeGoingAway)
	c.expectNotification("process/output", `"q"`, `"bGFzdCB3b3Jkcwo="`)
	c.expectNotification("process/exited", `"q"`, `"exitCode":3`)
	c.expectNotification("process/closed", `"q"`)
	idle.expectClosed(wsconn.CodeGoingAway)
	newcomer.expectClosed(wsconn.CodeGoingAway)
	<-o.served
}

// A process that still runs after the grace period is killed, and its owner receives the
// exit before the websocket closes.
func TestStop_JSONRPCClient_ReceivesExitAfterGrace(t *testing.T) {
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace = config.Duration(50 * time.Millisecond) })
	c := o.dialSession(nil)
	silent, err := o.dial(wsconn.DialOptions{}) // has no session
	if err != nil {
		t.Fatal(err)
	}
	c.start("p", "trap '' TERM; echo ready; while :; do sleep 1000; done")
	c.expectNotification("process/output", `"cmVhZHkK"`)
	o.stop(errOver)
	c.expectClosed(wsconn.CodeGoingAway)
	c.expectNotification("process/exited", `"exitCode":137`)
	c.expectNotification("process/closed")
	silent.expectClosed(wsconn.CodeGoingAway)
	<-o.served
}

// Stopping does not wait without limit for a client that does not read. The log counts
// only clients with unread notifications.
func TestStop_ClientNotReading_IsDisconnected(t *testing.T) {
	testrace.Slow(t)
	const waiting = 64 << 20 // more than socket buffers
	o := open(t, func(cfg *config.Config) { cfg.ShutdownGrace, cfg.RetainedOutput = 0, waiting })
	c := o.dialSession(nil)
	written := filepath.Join(t.TempDir(), "written")
	c.start("p", fmt.Sprintf("head -c %d /dev/zero; touch %s; sleep 1000", waiting*3/4, written))
	for _, err := os.Stat(written); err != nil; _, err = os.Stat(written) {
		if o.ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	dialRaw(t, strings.TrimPrefix(o.urls[0], "ws://")) // does not answer the close frame
	o.stop(errOver)
	select {
	case <-o.served:
	case <-o.ctx.Done():
		t.Fatal("the server does not stop")
	}
	if o.err != nil && !errors.Is(o.err, errOver) {
		t.Errorf("Serve = %v", o.err)
	}
	if log := o.log.String(); !strings.Contains(log, `msg="disconnected clients that did not read the end of their feeds or responses" clients=1 `) {
		t.Errorf("the log: %s", log)
	}
}

// Ordinary events of clients are logged at debug level: programs that start a server with
// stdio may show its log, or may not read it.
func TestLog_OrdinaryClientEvents_AreDebug(t *testing.T) {
	o := open(t, func(*config.Config) {})
	c, idle := o.dialSession(nil), o.dialSession(nil)
	c.start("p", "echo hello")
	c.expectNotification("process/closed")
	if err := c.conn.Close(wsconn.CodeNormal, ""); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(o.log.String(), "grpc.method=CloseSession") {
		if o.ctx.Err() != nil {
			t.Fatal("the session does not end")
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
		probe := strings.Contains(line, `msg="a sandbox works"`) // the server logs it a moment after its start
		process := strings.Contains(line, `msg="a process `)     // the start and the end of each are at INFO
		if !probe && !process && !strings.Contains(line, "level=DEBUG") {
			t.Error(line)
		}
	}
}
