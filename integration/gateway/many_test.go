package gateway

import (
	"fmt"
	"sync"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// Two hundred processes write concurrently over one connection, and the output of each is
// exactly its own.
func TestConnection_TwoHundredProcesses(t *testing.T) {
	const size = 200_000
	processes := 200
	if testing.Short() {
		processes = 40
	}
	server := harness.NewServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 })
	var mu sync.Mutex
	followers := map[string]*rpcFollower{}
	answers := make(chan harness.RPCContent, processes+10)
	var wrong error // guarded by mu
	open := processes
	done := make(chan struct{})
	c := harness.DialWebsocket(t, server.Address(harness.WebsocketTransport), nil, func(frame harness.RPCFrame) {
		if frame.Kind == "text" && frame.Method == "" {
			answers <- frame.RPCContent
		}
		if frame.Event == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		f := followers[frame.Event.ProcessID]
		if frame.Event.Seq != f.last+1 && wrong == nil {
			wrong = fmt.Errorf("number %d of %s came after %d", frame.Event.Seq, f.id, f.last)
		}
		if err := f.take(*frame.Event); err != nil && wrong == nil {
			wrong = err
		}
		if f.closed {
			if open--; open == 0 {
				close(done)
			}
		}
	})
	c.Post("initialize", harness.RPCParams{"clientName": "many"})
	c.Decode("initialize", <-answers, nil)
	c.Notify("initialized", nil)
	for i := range processes {
		f := followFlood(fmt.Sprint("p", i))
		mu.Lock()
		followers[f.id] = f
		mu.Unlock()
		c.Post("process/start", harness.StartOf(f.id, harness.Program("flood", "-bytes", fmt.Sprint(size), "-stderr", fmt.Sprint(size/2), "-chunk", "1500"), nil))
	}
	for range processes {
		c.Decode("process/start", <-answers, nil)
	}
	select {
	case <-done:
	case <-harness.Context(t).Done():
		t.Fatal("the processes do not end")
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		t.Error(wrong)
	}
	for id, f := range followers {
		if out, err := f.streams["stdout"].Offset(), f.streams["stderr"].Offset(); out != size || err != size/2 || *f.exit != 0 {
			t.Errorf("%s wrote %d and %d bytes and exited with %d", id, out, err, *f.exit)
		}
	}
}
