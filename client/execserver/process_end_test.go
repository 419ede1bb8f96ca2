package execserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// watch returns what there is of a process after a seq, as text.
func watch(t *testing.T, conn *Conn, after uint64) (said []string, last uint64) {
	t.Helper()
	stream, err := execwirev1.NewProcessServiceClient(conn).WatchProcess(t.Context(), &execwirev1.WatchProcessRequest{ProcessId: "p", AfterSeq: after})
	for err == nil {
		var m *execwirev1.WatchProcessResponse
		m, err = stream.Recv()
		for _, event := range m.GetEvents() {
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

func TestWhoHasAllOfAProcessIsToldThatThereIsNoMore(t *testing.T) {
	server := newGateway(t)
	for name, change := range map[string]func(*Options){
		"ours": func(*Options) {}, "older": asReference(t, false), "newer": asReference(t, true),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, server.address, change)
			if _, err := execwirev1.NewProcessServiceClient(conn).StartProcess(t.Context(), script("p", "echo out")); err != nil {
				t.Fatal(err)
			}
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

// TestAnAnswerThatEndsBeforeTheCloseIsReadOn has a server say how much it sent, as one of
// the reference does that was told how much to send: the close is behind that.
func TestAnAnswerThatEndsBeforeTheCloseIsReadOn(t *testing.T) {
	const answer = `{"id":%d,"result":{"chunks":[%s],"nextSeq":%d,"exited":true,"exitCode":0,"closed":true,"failure":null}}`
	reads := 0
	server := newScripted(func(id int64, method string) []string {
		switch method {
		case "process/start":
			return []string{fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id)}
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
	if _, err := execwirev1.NewProcessServiceClient(conn).StartProcess(t.Context(), script("p", "true")); err != nil {
		t.Fatal(err)
	}
	said, _ := watch(t, conn, 0)
	if text := strings.Join(said, ", "); text != "1 exited, 2 output, 3 closed" {
		t.Errorf("the process said %s", text)
	}
}

// TestAProcessThatEndsByItselfNeedsNoEndOfItsInput is about servers that cannot be told
// of that end.
func TestAProcessThatEndsByItselfNeedsNoEndOfItsInput(t *testing.T) {
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

// TestTheWindowOfAServerIsBoundedHere has one say that more may be under way than
// numbers can hold, and than there is memory for.
func TestTheWindowOfAServerIsBoundedHere(t *testing.T) {
	for _, p := range []peer{
		{windowBytes: 1 << 63}, {windowEvents: 1 << 63}, {windowBytes: 1<<64 - 1, windowEvents: 1<<64 - 1},
		{windowBytes: maxWindowQueue/2 - 1, windowEvents: maxWindowQueue/2/eventCost - 1},
	} {
		if limit, isPromise := p.mostUnacknowledged(); limit != maxWindowQueue || isPromise {
			t.Errorf("%d bytes and %d events are bounded by %d, %v", p.windowBytes, p.windowEvents, limit, isPromise)
		}
	}
	usual := peer{windowBytes: 1 << 20, windowEvents: 50_000}
	if limit, isPromise := usual.mostUnacknowledged(); limit != 2*(1<<20+50_000*eventCost) || !isPromise {
		t.Errorf("the usual window is bounded by %d, %v", limit, isPromise)
	}
}
