package execserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// dialScripted connects to a server that answers as a test says.
func dialScripted(t *testing.T, answer func(id int64, method string) []string) *Conn {
	t.Helper()
	requests := func(id int64, method string) []string {
		if method == "initialized" {
			return nil
		}
		return answer(id, method)
	}
	return dial(t, "", func(o *Options) {
		o.Open = func(context.Context) (jsonrpc.Transport, error) { return newScripted(requests), nil }
	})
}

// TestReadMissing_ExitFollowsItsOutput has servers that have lost the beginning of what is
// read, or not, and report of the exit only that there is one.
func TestReadMissing_ExitFollowsItsOutput(t *testing.T) {
	answer := func(next int, closed bool, seqs ...int) string {
		var chunks []string
		for _, seq := range seqs {
			chunks = append(chunks, fmt.Sprintf(`{"seq":%d,"stream":"stdout","chunk":"aGkK"}`, seq))
		}
		return fmt.Sprintf(`{"chunks":[%s],"nextSeq":%d,"exited":true,"exitCode":3,"closed":%t}`, strings.Join(chunks, ","), next, closed)
	}
	for name, test := range map[string]struct {
		answers []string // the last one is repeated
		want    string
	}{
		"much is lost, and the exit is last": {
			[]string{answer(6, true, 5), answer(8, true, 6, 7), answer(10, true)}, "gap, output, output, output, exited, closed"},
		"one event is lost, and the exit is last": {
			[]string{answer(3, true, 2), answer(5, true, 3, 4), answer(7, true)}, "gap, output, output, output, exited, closed"},
		"one event is lost, and nothing is closed": {
			[]string{answer(3, false, 2), answer(4, false)}, "gap, output, exited"},
		"one event is lost, and the exit is between": {
			[]string{answer(3, true, 2), answer(6, true, 3, 5), answer(7, true)}, "gap, output, output, exited, output, closed"},
		"the exit is between two answers": {
			[]string{answer(3, true, 2), answer(5, true, 4), answer(6, true)}, "gap, output, exited, output, closed"},
		"the exit is first": {
			[]string{answer(3, true, 2), answer(5, true, 3, 4), answer(6, true)}, "exited, output, output, output, closed"},
		"the exit is first, and nothing is closed": {
			[]string{answer(3, false, 2), answer(3, false)}, "exited, output"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := test.answers
			conn := dialScripted(t, func(id int64, _ string) []string {
				result := answers[0]
				answers = answers[min(1, len(answers)-1):]
				return []string{fmt.Sprintf(`{"id":%d,"result":%s}`, id, result)}
			})
			p := conn.processes.add(&process{conn: conn, id: "p"})
			if !p.readMissing(conn.lastLink()) {
				t.Fatal("the process is unknown")
			}
			var got []string
			for _, event := range p.log.next(new(uint64)) {
				got = append(got, kindOf(event))
			}
			if text := strings.Join(got, ", "); text != test.want {
				t.Errorf("%s, want %s", text, test.want)
			}
		})
	}
}

// TestArrive_OwnerLagsBehind_NothingIsEvicted has an answer of more than two windows that
// the owner has not seen when the link is needed by others.
func TestArrive_OwnerLagsBehind_NothingIsEvicted(t *testing.T) {
	const chunks = readBytes / 8
	result := readResult{NextSeq: chunks + 1}
	for seq := range uint64(chunks) {
		result.Chunks = append(result.Chunks, wireChunk{Seq: seq + 1, Stream: "stdout", Chunk: jsonrpc.Base64("12345678")})
	}
	c := &Conn{}
	p := c.processes.add(&process{conn: c, id: "p"})
	if err := p.addRead(&result, 0, 0, false); err != nil {
		t.Fatal(err)
	}
	p.incoming.lagging = true
	l := &link{conn: c}
	l.over, l.end = context.WithCancelCause(t.Context())
	l.end(nil) // nothing is read
	p.arrive(l, arrival{chunks + 1, outputEvent(execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, []byte("x"))})
	c.tasks.Wait()
	if p.log.evicted > 0 || p.log.last != chunks || p.incoming.announced != chunks+1 {
		t.Errorf("%d events of %d were evicted, and %d are announced", p.log.evicted, p.log.last, p.incoming.announced)
	}
}

// TestRecovery_OwnerTakesNothing_IsBounded has a server that sends notifications and
// answers without end, of a process whose owner takes nothing. Another process needs the
// link.
func TestRecovery_OwnerTakesNothing_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 16 << 20
		chunk := base64.StdEncoding.EncodeToString(make([]byte, maxChunkBytes))
		var sent atomic.Int64 // bytes of answers
		conn := dialScripted(t, func(id int64, _ string) []string {
			if sent.Add(maxChunkBytes) > most {
				return nil
			}
			seq := sent.Load() / maxChunkBytes
			return []string{fmt.Sprintf(`{"id":%d,"result":{"chunks":[{"seq":%d,"stream":"stdout","chunk":"%s"}],"nextSeq":%d,"exited":false,"closed":false}}`, id, seq, chunk, seq+1)}
		})
		l := conn.lastLink()
		conn.processes.add(&process{conn: conn, id: "q", owner: &run{}})
		p := conn.processes.add(&process{conn: conn, id: "p", started: true, owner: &run{}})
		p.startRecovery(l)
		for seq := range most / maxChunkBytes {
			params := fmt.Sprintf(`{"processId":"p","seq":%d,"stream":"stdout","chunk":"%s"}`, seq+2, chunk)
			if err := conn.notify(l, "process/output", []byte(params)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		const bound = 2*windowBytes + 2*(maxChunkBytes+eventCost)
		if p.log.bytes+p.incoming.bytes > bound || p.log.evicted > 0 {
			t.Errorf("%d bytes wait for the owner and %d for earlier events; %d events were evicted", p.log.bytes, p.incoming.bytes, p.log.evicted)
		}
	})
}

// TestReadMissing_AnswerBeyondTheLimit_EndsTheConnection has a server that ignores how much
// is asked for.
func TestReadMissing_AnswerBeyondTheLimit_EndsTheConnection(t *testing.T) {
	chunk := strings.Repeat("aGkK", maxMessageOutput/3+1)
	conn := dialScripted(t, func(id int64, _ string) []string {
		return []string{fmt.Sprintf(`{"id":%d,"result":{"chunks":[{"seq":1,"stream":"stdout","chunk":"%s"}],"nextSeq":2,"exited":false,"closed":false}}`, id, chunk)}
	})
	p := conn.processes.add(&process{conn: conn, id: "p"})
	var broken *ProtocolError
	if p.readMissing(conn.lastLink()) || !errors.As(context.Cause(conn.ctx), &broken) || !strings.Contains(broken.Problem, "1048576 are the limit") {
		t.Errorf("the connection is gone because of %v", context.Cause(conn.ctx))
	}
	if p.log.last > 0 {
		t.Errorf("%d events were taken", p.log.last)
	}
}

// TestStart_RepeatedMeanwhile_EndsWithItsContext repeats a start that the server does not
// answer.
func TestStart_RepeatedMeanwhile_EndsWithItsContext(t *testing.T) {
	asked := make(chan struct{}, 2)
	conn := dialScripted(t, func(int64, string) []string {
		asked <- struct{}{}
		return nil
	})
	first, err := execwirev1.NewProcessServiceClient(conn).RunProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: script("p", "true")}}}
	if err := first.Send(request); err != nil {
		t.Fatal(err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	service := &processService{conn: conn}
	_, err = service.start(ctx, conn.lastLink(), script("p", "true"), &run{})
	if status.Code(err) != codes.Canceled || len(asked) > 0 {
		t.Errorf("the repeated start ends with %v, and %d more requests", err, len(asked))
	}
}

// TestTerminate_OwnerTakesNothing_Returns terminates a process whose output fills the
// window of its owner: the exit is known although its event waits.
func TestTerminate_OwnerTakesNothing_Returns(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	hold(t, conn, 64<<20)
	p := conn.processes.find("slow")
	for isFull := false; !isFull; {
		p.mu.Lock()
		changed := p.changed.Wait()
		isFull = p.log.isFull()
		p.mu.Unlock()
		if !isFull {
			<-changed
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	processes := execwirev1.NewProcessServiceClient(conn)
	terminated, err := processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{ProcessId: "slow",
		Termination: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}})
	if err != nil || !terminated.GetWasRunning() || terminated.GetExit().GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
		t.Errorf("got %v, %v", terminated, err)
	}
	described, err := processes.GetProcess(ctx, &execwirev1.GetProcessRequest{ProcessId: "slow"})
	if err != nil || described.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_EXITED {
		t.Errorf("got %v, %v", described, err)
	}
}

// TestTerminate_OutputAfterTheAnswer_DoesNotHideTheExit has a full window, and output
// between the answer of the server and the exit, when nothing else needs the link.
func TestTerminate_OutputAfterTheAnswer_DoesNotHideTheExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chunk := make([]byte, maxChunkBytes)
		const received = windowBytes / maxChunkBytes
		conn := dialScripted(t, func(id int64, method string) []string {
			if method != "process/terminate" {
				return nil
			}
			return []string{
				fmt.Sprintf(`{"id":%d,"result":{"running":true}}`, id),
				fmt.Sprintf(`{"method":"process/output","params":{"processId":"p","seq":%d,"stream":"stdout","chunk":"aGkK"}}`, received+1),
				fmt.Sprintf(`{"method":"process/exited","params":{"processId":"p","seq":%d,"exitCode":137}}`, received+2),
			}
		})
		p := conn.processes.add(&process{conn: conn, id: "p", started: true, described: &execwirev1.Process{}, owner: &run{}})
		for range received {
			p.append(outputEvent(execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, chunk))
		}
		p.incoming.received = received
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		service := &processService{conn: conn}
		response, err := service.terminate(ctx, conn.lastLink(), p, nil)
		if err != nil || response.GetExit().GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
			t.Errorf("got %v, %v", response, err)
		}
	})
}

// kindsOf returns the kinds of all events in the log of a process.
func kindsOf(p *process) string {
	var kinds []string
	for at := uint64(0); at < p.log.last; {
		for _, event := range p.log.next(&at) {
			kinds = append(kinds, kindOf(event))
		}
	}
	return strings.Join(kinds, ", ")
}

// TestArrive_CloseBeforeTheExitIsFound_ComesAfterTheExit has a server that has lost the
// beginning of the output, and with it where the exit was, and sends the close before the
// read that finds no other place for the exit.
func TestArrive_CloseBeforeTheExitIsFound_ComesAfterTheExit(t *testing.T) {
	chunk := func(seq uint64) wireChunk {
		return wireChunk{Seq: seq, Stream: "stdout", Chunk: jsonrpc.Base64("x")}
	}
	c := &Conn{}
	p := c.processes.add(&process{conn: c, id: "p"})
	l := &link{conn: c}
	l.over, l.end = context.WithCancelCause(t.Context())
	code := new(int64)
	read := readResult{Chunks: []wireChunk{chunk(9), chunk(10)}, NextSeq: 11, Exited: true, ExitCode: code}
	if err := p.addRead(&read, 0, 0, false); err != nil {
		t.Fatal(err)
	}
	p.arrive(l, arrival{11, closedEvent()})
	end := readResult{NextSeq: 12, Exited: true, ExitCode: code, Closed: true}
	if err := p.addRead(&end, 11, 11, false); err != nil {
		t.Fatal(err)
	}
	if kinds := kindsOf(p); kinds != "gap, output, output, exited, closed" {
		t.Errorf("%s", kinds)
	}
}

// TestArrive_ExitIsRepeated_RecordStays has a server that sends an exit again after this
// program has terminated the process.
func TestArrive_ExitIsRepeated_RecordStays(t *testing.T) {
	c := &Conn{}
	p := c.processes.add(&process{conn: c, id: "p", described: &execwirev1.Process{}})
	l := &link{conn: c}
	l.over, l.end = context.WithCancelCause(t.Context())
	params := []byte(`{"processId":"p","seq":1,"exitCode":137}`)
	if err := c.notify(l, "process/exited", params); err != nil {
		t.Fatal(err)
	}
	p.killed = true
	if err := c.notify(l, "process/exited", params); err != nil {
		t.Fatal(err)
	}
	if exit := p.describe().GetExit(); exit.GetCause() != execwirev1.ExitCause_EXIT_CAUSE_EXITED || p.log.exit != exit {
		t.Errorf("the exit is %v, and its event has %v", exit, p.log.exit)
	}
}

// output32K returns a notification of maxChunkBytes of output.
func output32K(seq int) string {
	return fmt.Sprintf(`{"method":"process/output","params":{"processId":"p","seq":%d,"stream":"stdout","chunk":"%s"}}`,
		seq, base64.StdEncoding.EncodeToString(make([]byte, maxChunkBytes)))
}

const (
	exitedSeq = `{"method":"process/exited","params":{"processId":"p","seq":%d,"exitCode":3}}`
	closedSeq = `{"method":"process/closed","params":{"processId":"p","seq":%d}}`
)

// openRun opens a stream until the test ends, and starts a process on it.
func openRun(t *testing.T, conn *Conn, start *execwirev1.RunStart) execwirev1.ProcessService_RunProcessClient {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestRun_SlowOwnerOfARemovedProcess_GetsTheExit has an owner that takes nothing until the
// server has removed the closed process, while another process needs the link.
func TestRun_SlowOwnerOfARemovedProcess_GetsTheExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = windowBytes / maxChunkBytes
		conn := dialScripted(t, func(id int64, method string) (messages []string) {
			switch method {
			case "process/start":
				messages = append(messages, fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id))
				for seq := range window + 5 {
					messages = append(messages, output32K(seq+1))
				}
				return append(messages, fmt.Sprintf(exitedSeq, window+6), output32K(window+7), fmt.Sprintf(closedSeq, window+8))
			case "process/read":
				return []string{fmt.Sprintf(`{"id":%d,"error":{"code":-32600,"message":"unknown process id p"}}`, id)}
			}
			return nil
		})
		conn.processes.add(&process{conn: conn, id: "q", owner: &run{}})
		stream := openRun(t, conn, &execwirev1.RunStart{Process: script("p", "x")})
		time.Sleep(time.Minute)
		var kinds []string
		var lost uint64
		for {
			m, err := stream.Recv()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			last := uint64(0)
			for _, event := range m.GetEvents().GetEvents() {
				if kinds = append(kinds, kindOf(event)); event.GetGap() != nil {
					lost += event.GetGap().GetDroppedBytes()
				}
				last = max(last, event.GetSeq())
			}
			if last > 0 {
				_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
					Acknowledge: &execwirev1.RunAcknowledge{Seq: last}}})
			}
		}
		text := strings.Join(kinds, ", ")
		if !strings.HasSuffix(text, "output, gap, exited, closed") || strings.Count(text, "output")*maxChunkBytes+int(lost) != (window+6)*maxChunkBytes {
			t.Errorf("%s; %d bytes are lost", text, lost)
		}
	})
}

// TestFail_RemovedProcess_KeepsWhatArrivedEarly has events behind a hole, whose beginning
// nothing can be read of. A second failure adds nothing.
func TestFail_RemovedProcess_KeepsWhatArrivedEarly(t *testing.T) {
	c := &Conn{}
	p := c.processes.add(&process{conn: c, id: "p"})
	l := &link{conn: c, over: t.Context()}
	exit := exitedEvent(p.exitOf(new(int64), nil))
	output := func() *execwirev1.ProcessEvent {
		return outputEvent(execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, []byte("x"))
	}
	p.incoming.recovery = l // nothing is read
	for _, arrived := range []arrival{{1, output()}, {4, output()}, {6, exit}, {7, output()}, {9, closedEvent()}} {
		p.arrive(l, arrived)
	}
	for range 2 {
		p.fail(l, processNotFound("p"))
	}
	if kinds := kindsOf(p); kinds != "output, gap, output, gap, exited, output, gap, closed" || p.failed != nil {
		t.Errorf("%s, %v", kinds, p.failed)
	}
}

// TestRun_Failure_FollowsAllEvents has more events than a window before the server fails to
// answer.
func TestRun_Failure_FollowsAllEvents(t *testing.T) {
	p := &process{conn: &Conn{}, id: "p", failed: io.ErrUnexpectedEOF}
	for range windowEvents + 2*batchBytes/eventCost {
		p.append(outputEvent(execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, nil))
	}
	r := &run{}
	r.own(p, 0)
	for err := error(nil); err == nil; {
		var responses []*execwirev1.RunProcessResponse
		if responses, _, err = r.next(); len(responses) == 0 && err == nil {
			r.acknowledge(r.sent)
		}
		if err != nil && r.sent != p.log.last {
			t.Errorf("it fails after %d events of %d", r.sent, p.log.last)
		}
	}
}

// TestRun_SmallEvents_AreSentByTheWindow has a server that answers a read with a chunk for
// each byte, of which the owner acknowledges none.
func TestRun_SmallEvents_AreSentByTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks = readBytes
		conn := dialScripted(t, func(id int64, method string) []string {
			switch method {
			case "process/start":
				return []string{fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id), output32K(chunks + 1)}
			case "process/read":
				var all strings.Builder
				for seq := range chunks {
					fmt.Fprintf(&all, `,{"seq":%d,"stream":"stdout","chunk":"eA=="}`, seq+1)
				}
				return []string{fmt.Sprintf(`{"id":%d,"result":{"chunks":[%s],"nextSeq":%d,"exited":false,"closed":false}}`, id, all.String()[1:], chunks+2)}
			}
			return nil
		})
		stream := openRun(t, conn, &execwirev1.RunStart{Process: script("p", "x")})
		var events, window int
		go func() {
			for {
				m, err := stream.Recv()
				if err != nil {
					return
				}
				window += int(m.GetStarted().GetOutputWindowEvents())
				events += len(m.GetEvents().GetEvents())
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if events < window || events > window+batchBytes/eventCost || window == 0 {
			t.Errorf("%d events were sent, of a window of %d", events, window)
		}
	})
}
