package execserver

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// TestTerminateAbandoned_FullWindow_IsForgotten has a process whose owner has not taken its
// output and does not come back.
func TestTerminateAbandoned_FullWindow_IsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = windowBytes / maxChunkBytes
		conn := dialScripted(t, func(id int64, method string) (messages []string) {
			switch method {
			case "process/start":
				messages = append(messages, fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id))
				for seq := range window + 1 {
					messages = append(messages, output32K(seq+1))
				}
			case "process/terminate":
				messages = append(messages, fmt.Sprintf(`{"id":%d,"result":{"running":true}}`, id), output32K(window+2),
					fmt.Sprintf(exitedSeq, window+3), fmt.Sprintf(closedSeq, window+4))
			case "process/read":
				messages = append(messages, fmt.Sprintf(`{"id":%d,"result":{"chunks":[],"nextSeq":%d,"exited":true,"exitCode":3,"closed":true}}`, id, window+5))
			}
			return messages
		})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := &execwirev1.RunStart{Process: script("p", "x"), Grace: durationpb.New(time.Second)}
		if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		time.Sleep(time.Minute)
		p := conn.processes.find("p")
		p.mu.Lock()
		bytes, closed, exit := p.log.bytes, p.log.closed, p.log.exit
		p.mu.Unlock()
		if !closed || exit == nil || bytes > eventCost {
			t.Errorf("%d bytes wait for an owner, closed is %v with %v", bytes, closed, exit)
		}
		time.Sleep(closedRetention)
		if !p.isForgotten() {
			t.Error("the process is not forgotten")
		}
	})
}

// TestProcessTable_ClosedProcess_IsKeptForItsOwner has an owner that takes longer for the
// output than a closed process is kept, and loses its stream.
func TestProcessTable_ClosedProcess_IsKeptForItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{}
		owner := &run{}
		p := c.processes.add(&process{conn: c, id: "p", started: true})
		owner.own(p, 0)
		p.append(closedEvent())
		time.Sleep(closedRetention + time.Second)
		c.processes.add(&process{conn: c, id: "q"})
		owner.release(io.ErrUnexpectedEOF)
		c.processes.add(&process{conn: c, id: "r"})
		if c.processes.find("p") != p {
			t.Error("the process was forgotten while it had an owner")
		}
		time.Sleep(closedRetention + time.Second)
		if !p.isForgotten() {
			t.Error("the process is not forgotten")
		}
	})
}

// TestStart_NeverAnswered_IsForgotten has a start whose owner is gone before it is sent, one
// that the server does not answer, and a process of which the server knows nothing.
func TestStart_NeverAnswered_IsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialScripted(t, func(id int64, method string) []string {
			if method == "process/start" {
				return nil
			}
			return []string{fmt.Sprintf(`{"id":%d,"error":{"code":-32600,"message":"unknown process id"}}`, id)}
		})
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := &execwirev1.RunStart{Process: script("unanswered", "x"), Grace: durationpb.New(time.Second)}
		if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		cancelled := &run{service: &processService{conn: conn}, grace: start.GetGrace()}
		_, err = cancelled.service.start(ctx, conn.lastLink(), script("unsent", "x"), cancelled)
		cancelled.release(err)
		unknown := conn.processes.add(&process{conn: conn, id: "unknown", started: true})
		unknown.startRecovery(conn.lastLink())
		time.Sleep(time.Second + closedRetention + time.Second)
		for _, id := range []string{"unanswered", "unsent", "unknown"} {
			if p := conn.processes.find(id); p == nil || !p.isForgotten() {
				t.Errorf("the process %q is kept: %v", id, p)
			}
		}
	})
}
