package server_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/testproc"
)

func waitPattern(p *execwirev1.WaitForPattern) *execwirev1.WaitProcessRequest {
	return &execwirev1.WaitProcessRequest{ProcessId: "p", Wait: seconds(20), Condition: &execwirev1.WaitProcessRequest_Pattern{Pattern: p}}
}

func waitPort(port uint32) *execwirev1.WaitProcessRequest {
	return &execwirev1.WaitProcessRequest{ProcessId: "p", Wait: seconds(20),
		Condition: &execwirev1.WaitProcessRequest_Port{Port: &execwirev1.WaitForPort{Port: port}}}
}

func waitIdle(silence float64) *execwirev1.WaitProcessRequest {
	return &execwirev1.WaitProcessRequest{ProcessId: "p", Wait: seconds(20),
		Condition: &execwirev1.WaitProcessRequest_Idle{Idle: &execwirev1.WaitForIdle{Silence: seconds(silence)}}}
}

func TestWaitProcess_MalformedCondition_NamesField(t *testing.T) {
	f := newFixture(t)
	f.start(withStdin(command("p", "cat")))
	for _, tt := range []struct {
		field, text string
		req         *execwirev1.WaitProcessRequest
	}{
		{"pattern.regular_expression", "missing closing )", waitPattern(&execwirev1.WaitForPattern{RegularExpression: "("})},
		{"pattern.regular_expression", "1024", waitPattern(&execwirev1.WaitForPattern{RegularExpression: strings.Repeat("x", 1025)})},
		{"pattern.stream", "9", waitPattern(&execwirev1.WaitForPattern{Stream: 9})},
		{"pattern.stream", "does not have", waitPattern(&execwirev1.WaitForPattern{Stream: execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL})},
		{"port.port", "1 to 65535", waitPort(0)},
		{"port.port", "1 to 65535", waitPort(65536)},
		{"idle.silence", "missing", &execwirev1.WaitProcessRequest{ProcessId: "p",
			Condition: &execwirev1.WaitProcessRequest_Idle{Idle: &execwirev1.WaitForIdle{}}}},
		{"idle.silence", "0", waitIdle(0)},
		{"idle.silence", "negative", waitIdle(-1)},
	} {
		_, err := f.processes.WaitProcess(f.ctx, tt.req)
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(err); got != tt.field || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("the violated field is %q, want %q and %q: %v", got, tt.field, tt.text, err)
		}
	}
	_, err := f.processes.WaitProcess(f.ctx, waitPattern(&execwirev1.WaitForPattern{AfterSeq: 1000}))
	expectFailure(t, err, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED)
}

func TestWaitForPattern_ReportsPosition(t *testing.T) {
	f := newFixture(t)
	f.start(shell("p", "printf 'one two\\n'; printf three >&2"))
	f.waitClosed("p")
	req := waitPattern(&execwirev1.WaitForPattern{RegularExpression: `t[a-z]+`, Stream: execwirev1.OutputStream_OUTPUT_STREAM_STDERR})
	resp, err := f.processes.WaitProcess(f.ctx, req)
	m := resp.GetMatch()
	if err != nil || !resp.GetSatisfied() || string(m.GetData()) != "three" || m.GetStream() != execwirev1.OutputStream_OUTPUT_STREAM_STDERR ||
		m.GetSeq() == 0 || resp.GetProcess().GetState() != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
		t.Fatalf("got %v, %v", resp, err)
	}
	resp, err = f.processes.WaitProcess(f.ctx, waitPattern(&execwirev1.WaitForPattern{RegularExpression: `t[ow]+`}))
	if err != nil || string(resp.GetMatch().GetData()) != "two" || resp.GetMatch().GetOffset() != 4 {
		t.Errorf("over all streams: %v, %v", resp, err)
	}
	// A wait after the cursor of a match finds only later matches.
	req.GetPattern().AfterSeq = m.GetSeq()
	if resp, err = f.processes.WaitProcess(f.ctx, req); err != nil || resp.GetSatisfied() || resp.GetMatch() != nil {
		t.Errorf("after the match: %v, %v", resp, err)
	}
}

func TestWaitProcess_PortAndIdle(t *testing.T) {
	f := newFixture(t)
	port := uint32(testport.Reserve(t))
	listen := withStdin(command("p", testproc.Argv("listen", fmt.Sprintf("127.0.0.1:%d", port))...))
	listen.GetCommand().GetDirect().Env = map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/"}
	f.start(listen)
	if resp, err := f.processes.WaitProcess(f.ctx, waitPort(port)); err != nil || !resp.GetSatisfied() {
		t.Fatalf("port: %v, %v", resp, err)
	}
	if resp, err := f.processes.WaitProcess(f.ctx, waitIdle(0.05)); err != nil || !resp.GetSatisfied() {
		t.Errorf("idle: %v, %v", resp, err)
	}
	short := waitIdle(3600)
	short.Wait = seconds(0.01)
	if resp, err := f.processes.WaitProcess(f.ctx, short); err != nil || resp.GetSatisfied() {
		t.Errorf("idle for an hour: %v, %v", resp, err)
	}
}
