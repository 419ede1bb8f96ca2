package integration

import (
	"fmt"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/config"
)

// Two hundred processes speak at once over one connection, and each says
// exactly what it says.
func TestTwoHundredProcessesOnOneConnection(t *testing.T) {
	const size = 200_000
	processes := 200
	if testing.Short() {
		processes = 40
	}
	server := newServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 })
	var mu sync.Mutex
	followers := map[string]*rpcFollower{}
	answers := make(chan rpcContent, processes+10)
	var wrong error // guarded by mu
	open := processes
	done := make(chan struct{})
	c := dialWebsocket(t, server.address(websocketDoor), nil, func(frame rpcFrame) {
		if frame.kind == "text" && frame.Method == "" {
			answers <- frame.rpcContent
		}
		if frame.news == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		f := followers[frame.news.ProcessID]
		if frame.news.Seq != f.last+1 && wrong == nil {
			wrong = fmt.Errorf("number %d of %s came after %d", frame.news.Seq, f.id, f.last)
		}
		if err := f.take(*frame.news); err != nil && wrong == nil {
			wrong = err
		}
		if f.closed {
			if open--; open == 0 {
				close(done)
			}
		}
	})
	c.post("initialize", rpcParams{"clientName": "many"})
	c.decode("initialize", <-answers, nil)
	c.notify("initialized", nil)
	for i := range processes {
		f := followFlood(fmt.Sprint("p", i))
		mu.Lock()
		followers[f.id] = f
		mu.Unlock()
		c.post("process/start", startOf(f.id, program("flood", "-bytes", fmt.Sprint(size), "-stderr", fmt.Sprint(size/2), "-chunk", "1500"), nil))
	}
	for range processes {
		c.decode("process/start", <-answers, nil)
	}
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatal("the processes do not end")
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		t.Error(wrong)
	}
	for id, f := range followers {
		if out, err := f.streams["stdout"].Offset(), f.streams["stderr"].Offset(); out != size || err != size/2 || *f.exit != 0 {
			t.Errorf("%s said %d and %d bytes and exited with %d", id, out, err, *f.exit)
		}
	}
}
