package execserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// watch starts a process, or resumes it after a seq, and returns its events as text.
func watch(t *testing.T, conn *Conn, after uint64) (said []string, last uint64) {
	t.Helper()
	stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opening := &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: script("p", "echo out")}}}
	if after > 0 {
		opening.Message = &execwirev1.RunProcessRequest_Resume{Resume: &execwirev1.RunResume{ProcessId: "p", AfterSeq: after}}
	}
	_ = stream.Send(opening) // Recv says why it failed
	for err == nil {
		var m *execwirev1.RunProcessResponse
		m, err = stream.Recv()
		for _, event := range m.GetEvents().GetEvents() {
			last = event.GetSeq()
			said = append(said, fmt.Sprintf("%d %s", last, kindOf(event)))
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return said, last
}

func kindOf(event *execwirev1.ProcessEvent) string {
	switch {
	case event.GetOutput() != nil:
		return "output"
	case event.GetExited() != nil:
		return "exited"
	case event.GetClosed() != nil:
		return "closed"
	}
	return "gap"
}

func TestResume_AfterTheClose_Ends(t *testing.T) {
	server := newGateway(t)
	for name, change := range map[string]func(*Options){
		"ours": func(*Options) {}, "older": asReference(t, false), "newer": asReference(t, true),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, server.address, change)
			said, last := watch(t, conn, 0)
			if text := strings.Join(said, ", "); text != "1 output, 2 exited, 3 closed" {
				t.Errorf("the process said %s", text)
			}
			if said, _ := watch(t, conn, last); len(said) > 0 {
				t.Errorf("after the close it said %q", said)
			}
		})
	}
}

// TestRead_AnswerWithoutTheClose_IsContinued has a server say how much it sent, as one of
// the reference does that was told how much to send: the close is behind that.
func TestRead_AnswerWithoutTheClose_IsContinued(t *testing.T) {
	const output = `{"method":"process/output","params":{"processId":"p","seq":2,"stream":"stdout","chunk":"aGkK"}}` // 1 is missing
	const answer = `{"id":%d,"result":{"chunks":[%s],"nextSeq":%d,"exited":true,"exitCode":0,"closed":true,"failure":null}}`
	reads := 0
	server := newScripted(func(id int64, method string) []string {
		switch method {
		case "process/start":
			return []string{fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id), output}
		case "process/read":
			if reads++; reads == 1 {
				return []string{fmt.Sprintf(answer, id, `{"seq":2,"stream":"stdout","chunk":"aGkK"}`, 3)}
			}
			return []string{fmt.Sprintf(answer, id, "", 4)}
		}
		return nil
	})
	conn := dial(t, "", func(o *Options) {
		o.Open = func(context.Context) (jsonrpc.Transport, error) { return server, nil }
	})
	said, _ := watch(t, conn, 0)
	if text := strings.Join(said, ", "); text != "1 exited, 2 output, 3 closed" {
		t.Errorf("the process said %s", text)
	}
}

// TestStdin_ProcessExits_NeedsNoEnd is about servers that cannot be told
// of that end.
func TestStdin_ProcessExits_NeedsNoEnd(t *testing.T) {
	server := newGateway(t)
	for _, newer := range []bool{false, true} {
		start := script("p", "read line; echo got $line; exit 3")
		start.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
		var said strings.Builder
		o := &owner{t: t, conn: dial(t, server.address, asReference(t, newer)), start: start, stdout: &said, input: []byte("a\nb\n")}
		if err := o.run(); err != nil || said.String() != "got a\n" || o.exit.GetExitCode() != 3 {
			t.Errorf("%q, %v, %v", &said, o.exit, err)
		}
	}
}
