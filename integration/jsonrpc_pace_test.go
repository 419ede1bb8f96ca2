package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// A client that stops reading holds back its own processes, in bounded memory,
// and loses nothing; neither its requests nor other clients are held up.
func TestAClientThatStopsReadingHoldsBackItsOwnProcesses(t *testing.T) {
	slow(t)
	const processes, size = 4, 64 << 20
	server := serve(t)
	var mu sync.Mutex
	followers := map[string]*rpcFollower{}
	open, done := processes, make(chan struct{})
	answers := make(chan rpcContent, 2*processes)
	var wrong error // guarded by mu
	for i := range processes {
		id := fmt.Sprint("p", i)
		followers[id] = followFlood(id)
	}
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
		if err := f.take(*frame.news); err != nil && wrong == nil {
			wrong = err
		}
		if f.closed {
			if open--; open == 0 {
				close(done)
			}
		}
	})
	c.post("initialize", rpcParams{"clientName": "slow"})
	hello := <-answers
	c.decodeSession(hello)
	c.notify("initialized", nil)

	pid := server.Process.Pid
	if child, guarded := serverOf(pid); guarded {
		pid = child
	}
	before := benchProcess{t, pid}.resident()
	c.stall()
	for id := range followers {
		c.post("process/start", startOf(id, program("flood", "-bytes", fmt.Sprint(size)), nil))
	}
	core := execwirev1.NewProcessServiceClient(dial(t, "tcp", server.address(tcpDoor)))
	spoken := func() map[string]uint64 {
		said := map[string]uint64{}
		for id := range followers {
			told, err := core.GetProcess(testContext(t), &execwirev1.GetProcessRequest{SessionId: c.session, ProcessId: id})
			if err == nil {
				said[id] = told.GetProcess().GetLastSeq()
			}
		}
		return said
	}
	last := map[string]uint64{}
	unchanged := 0
	eventually(t, "the processes are held back", func() bool {
		now := spoken()
		if len(now) == processes && fmt.Sprint(now) == fmt.Sprint(last) {
			unchanged++
		} else {
			unchanged = 0
		}
		last = now
		return unchanged > 50
	})
	other := websocketClient(t, server.address(websocketDoor)).initialize("")
	other.start("p", []string{"/bin/echo", "hello"}, nil)
	other.expectEnd("p", 0)
	if grown := (benchProcess{t, pid}).resident() - before; grown > 40<<20 {
		t.Errorf("the server grew by %d KiB for %d processes that write %d MiB each", grown>>10, processes, size>>20)
	}

	c.proceed()
	select {
	case <-done:
	case <-testContext(t).Done():
		t.Fatal("the processes do not end once the client reads")
	}
	mu.Lock()
	defer mu.Unlock()
	if wrong != nil {
		t.Error(wrong)
	}
	for id, f := range followers {
		if got := f.streams["stdout"].Offset(); got != size || *f.exit != 0 {
			t.Errorf("%s said %d bytes and exited with %d", id, got, *f.exit)
		}
	}
}

// A thousand clients that do nothing cost little memory, a descriptor each, and
// no processor time.
func TestAThousandIdleConnectionsCostLittle(t *testing.T) {
	slow(t)
	const connections = 1000
	server := serve(t, "EXECWIRE_CONNECTIONS_PER_LISTENER=2000", "EXECWIRE_SESSIONS_PER_PRINCIPAL=2000")
	pid := server.Process.Pid
	if child, guarded := serverOf(pid); guarded {
		pid = child
	}
	p := benchProcess{t, pid}
	for range 10 { // what is made once
		websocketClient(t, server.address(websocketDoor)).initialize("").shut()
	}
	memory, descriptors := p.resident(), p.descriptors()
	var last *rpcClient
	for range connections {
		last = websocketClient(t, server.address(websocketDoor)).initialize("")
		last.result("environment/status", nil, nil)
	}
	last.start("p", []string{"/bin/true"}, nil) // after which a server gives back what it does not need
	last.expectEnd("p", 0)
	if grown := p.descriptors() - descriptors; grown > connections+10 {
		t.Errorf("%d connections use %d descriptors", connections, grown)
	}
	each := int64(0)
	eventually(t, "idle connections cost 60 KiB each", func() bool {
		each = (p.resident() - memory) / connections
		return each <= 60<<10
	})
	t.Logf("an idle connection costs %d KiB", each>>10)
	p.expectIdle()
}

// expectIdle wants a process to use next to no processor time in a while.
func (p benchProcess) expectIdle() {
	p.tb.Helper()
	const while = 3 * time.Second
	settled := p.cpu()
	eventually(p.tb, "the server has come to rest", func() bool {
		time.Sleep(10 * clockTick)
		was := settled
		settled = p.cpu()
		return settled == was
	})
	time.Sleep(while)
	if used := p.cpu() - settled; used > while/10 {
		p.tb.Errorf("doing nothing for %v took %v of processor time", while, used)
	}
}
