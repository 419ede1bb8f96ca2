package bench

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/notify"
)

// owned is a process whose owner is an OwnProcess stream and calls, as in a browser.
type owned struct {
	b         *bench
	processes execwirev1.ProcessServiceClient
	stream    grpc.ServerStreamingClient[execwirev1.OwnProcessResponse]
	id, owner string
	sent      uint64 // bytes of input
}

// own starts a process and owns it.
func (b *bench) own(c *client.Client, process *execwirev1.StartProcessRequest) *owned {
	b.Helper()
	process.ProcessId = rand.Text()
	o := &owned{b: b, processes: c.Processes(), id: process.GetProcessId()}
	var err error
	o.stream, err = o.processes.OwnProcess(b.ctx, &execwirev1.OwnProcessRequest{
		Message: &execwirev1.OwnProcessRequest_Start{Start: &execwirev1.RunStart{Process: process}}})
	if err != nil {
		b.Fatal(err)
	}
	started, err := o.stream.Recv()
	if err != nil {
		b.Fatal(err)
	}
	o.owner = started.GetStarted().GetOwnerId()
	return o
}

// receive passes the output on until the process is closed. It acknowledges as the SDKs do:
// one call at a time, for all that has arrived.
func (o *owned) receive(output func([]byte)) {
	var mu sync.Mutex
	var last uint64 // guarded by mu
	arrived, ended := notify.NewSignal(), make(chan struct{})
	var acknowledging sync.WaitGroup
	acknowledging.Go(func() {
		for acknowledged := uint64(0); ; {
			select {
			case <-arrived.C():
			case <-ended:
				return
			}
			mu.Lock()
			seq := last
			mu.Unlock()
			if seq == acknowledged { // perhaps of a process that is closed
				continue
			}
			acknowledged = seq
			if _, err := o.processes.AcknowledgeOutput(o.b.ctx, &execwirev1.AcknowledgeOutputRequest{ProcessId: o.id, OwnerId: o.owner, Seq: seq}); err != nil {
				o.b.Error(err)
			}
		}
	})
	closed := false
	for {
		m, err := o.stream.Recv()
		if err != nil {
			close(ended)
			acknowledging.Wait()
			if !errors.Is(err, io.EOF) || !closed {
				o.b.Errorf("the stream ended, closed %t: %v", closed, err)
			}
			return
		}
		for _, event := range m.GetEvents().GetEvents() {
			if data := event.GetOutput().GetData(); len(data) > 0 {
				output(data)
			}
			closed = closed || event.GetClosed() != nil
			mu.Lock()
			last = event.GetSeq()
			mu.Unlock()
		}
		arrived.Set()
	}
}

// write sends input.
func (o *owned) write(data string) {
	if _, err := o.processes.WriteStdin(o.b.ctx, &execwirev1.WriteStdinRequest{ProcessId: o.id, OwnerId: o.owner, Offset: o.sent, Data: []byte(data)}); err != nil {
		o.b.Fatal(err)
	}
	o.sent += uint64(len(data))
}

// receiveOwned is receiveOutput through OwnProcess.
func (b *bench) receiveOwned(c *client.Client, n int64) {
	b.Helper()
	received := int64(0)
	b.own(c, benchCommand(zeros(n)...)).receive(func(data []byte) { received += int64(len(data)) })
	if received != n {
		b.Fatalf("%d of %d bytes arrived", received, n)
	}
}

// ownTerminal is runTerminal through OwnProcess.
func (b *bench) ownTerminal(c *client.Client) (key, end func()) {
	b.Helper()
	o := b.own(c, terminalRequest())
	echoes, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		o.receive(func(data []byte) { echoes <- string(data) })
	}()
	key = func() {
		o.write("x")
		if echo := <-echoes; echo != "x" {
			b.Fatalf("the terminal echoed %q", echo)
		}
	}
	return key, func() {
		if _, err := o.processes.TerminateProcess(b.ctx, &execwirev1.TerminateProcessRequest{ProcessId: o.id, Termination: killed}); err != nil {
			b.Error(err)
		}
		<-ended
	}
}
