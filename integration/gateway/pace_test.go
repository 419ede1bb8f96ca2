package gateway

import (
	"fmt"
	"sync"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// A client that does not read blocks only its own processes, in bounded memory, and loses
// nothing. Its requests and other clients are not delayed.
func TestBackpressure_ClientStopsReading_BlocksOnlyItsProcesses(t *testing.T) {
	harness.Slow(t)
	const processes, size = 4, 16 << 20
	server := harness.Serve(t)
	var mu sync.Mutex
	followers := map[string]*rpcFollower{}
	open, done := processes, make(chan struct{})
	answers := make(chan harness.RPCContent, 2*processes)
	var wrong error // guarded by mu
	for i := range processes {
		id := fmt.Sprint("p", i)
		followers[id] = followFlood(id)
	}
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
		if err := f.take(*frame.Event); err != nil && wrong == nil {
			wrong = err
		}
		if f.closed {
			if open--; open == 0 {
				close(done)
			}
		}
	})
	c.Post("initialize", harness.RPCParams{"clientName": "slow"})
	hello := <-answers
	c.DecodeSession(hello)
	c.Notify("initialized", nil)

	pid := server.Process.Pid
	if child, guarded := harness.ServerOf(pid); guarded {
		pid = child
	}
	before := harness.ProcStat{Tb: t, Pid: pid}.Resident()
	c.Stall()
	for id := range followers {
		c.Post("process/start", harness.StartOf(id, harness.Program("flood", "-bytes", fmt.Sprint(size)), nil))
	}
	core := execwirev1.NewProcessServiceClient(harness.Dial(t, "tcp", server.Address(harness.TCPTransport)))
	spoken := func() map[string]uint64 {
		lastSeqs := map[string]uint64{}
		for id := range followers {
			response, err := core.GetProcess(harness.Context(t), &execwirev1.GetProcessRequest{SessionId: c.Session, ProcessId: id})
			if err == nil {
				lastSeqs[id] = response.GetProcess().GetLastSeq()
			}
		}
		return lastSeqs
	}
	last := map[string]uint64{}
	unchanged := 0
	harness.Eventually(t, "the processes are held back", func() bool {
		now := spoken()
		if len(now) == processes && fmt.Sprint(now) == fmt.Sprint(last) {
			unchanged++
		} else {
			unchanged = 0
		}
		last = now
		return unchanged > 50
	})
	other := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	other.Start("p", []string{"/bin/echo", "hello"}, nil)
	other.ExpectEnd("p", 0)
	if grown := (harness.ProcStat{Tb: t, Pid: pid}).Resident() - before; grown > 40<<20 {
		t.Errorf("the server grew by %d KiB for %d processes that write %d MiB each", grown>>10, processes, size>>20)
	}

	c.Proceed()
	select {
	case <-done:
	case <-harness.Context(t).Done():
		t.Fatal("the processes do not end once the client reads")
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		t.Error(wrong)
	}
	for id, f := range followers {
		if got := f.streams["stdout"].Offset(); got != size || *f.exit != 0 {
			t.Errorf("%s wrote %d bytes and exited with %d", id, got, *f.exit)
		}
	}
}

// A thousand idle clients use little memory, one descriptor each, and no CPU time.
func TestIdle_ThousandConnections_CostLittle(t *testing.T) {
	harness.Slow(t)
	const connections = 1000
	server := harness.Serve(t, "EXECWIRE_CONNECTIONS_PER_LISTENER=2000", "EXECWIRE_SESSIONS_PER_PRINCIPAL=2000")
	pid := server.Process.Pid
	if child, guarded := harness.ServerOf(pid); guarded {
		pid = child
	}
	p := harness.ProcStat{Tb: t, Pid: pid}
	for range 10 { // what is made once
		harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("").Shut()
	}
	memory, descriptors := p.Resident(), p.Descriptors()
	var last *harness.RPCClient
	for range connections {
		last = harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
		last.Result("environment/status", nil, nil)
	}
	last.Start("p", []string{"/bin/true"}, nil) // after which a server gives back what it does not need
	last.ExpectEnd("p", 0)
	if grown := p.Descriptors() - descriptors; grown > connections+10 {
		t.Errorf("%d connections use %d descriptors", connections, grown)
	}
	each := int64(0)
	harness.Eventually(t, "idle connections cost 60 KiB each", func() bool {
		each = (p.Resident() - memory) / connections
		return each <= 60<<10
	})
	t.Logf("an idle connection costs %d KiB", each>>10)
	expectIdle(p)
}

// expectIdle checks that a process uses almost no CPU time for a while.
func expectIdle(p harness.ProcStat) {
	p.Tb.Helper()
	const while = 3 * time.Second
	settled := p.CPU()
	harness.Eventually(p.Tb, "the server has come to rest", func() bool {
		time.Sleep(10 * harness.ClockTick)
		was := settled
		settled = p.CPU()
		return settled == was
	})
	time.Sleep(while)
	if used := p.CPU() - settled; used > while/10 {
		p.Tb.Errorf("doing nothing for %v took %v of CPU time", while, used)
	}
}
