package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	testTraceID = "0af7651916cd43dd8448eb211c80319c"
	testSpanID  = "b7ad6b7169203331"
)

// lockedLog is a log buffer for concurrent readers and writers.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was written since the last call.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// The log line of a call has the caller's trace id if the traceparent is well-formed, and
// nothing else of the caller's metadata.
func TestLog_HasTraceOfCaller(t *testing.T) {
	log := new(lockedLog)
	f := newFixture(t, func(s *settings) {
		s.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	parent := "00-" + testTraceID + "-" + testSpanID + "-01"
	for name, tc := range map[string]struct {
		metadata []string
		logged   bool
	}{
		"none":        {},
		"well-formed": {metadata: []string{"traceparent", parent, "tracestate", "a=secret"}, logged: true},
		"bad state":   {metadata: []string{"traceparent", parent, "tracestate", "secret"}, logged: true},
		"two":         {metadata: []string{"traceparent", parent, "traceparent", parent}},
		"short":       {metadata: []string{"traceparent", parent[:54]}},
		"no hex":      {metadata: []string{"traceparent", strings.Replace(parent, "0af7", "secr", 1)}},
		"long":        {metadata: []string{"traceparent", parent + strings.Repeat("-secret", 1<<17)}},
	} {
		ctx := metadata.AppendToOutgoingContext(f.ctx, tc.metadata...)
		calls := map[string]func() error{
			"unary": func() error {
				_, err := f.environ.GetEnvironment(ctx, &execwirev1.GetEnvironmentRequest{})
				return err
			},
			"refused": func() error {
				if _, err := f.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{ProcessId: "none"}); err == nil {
					t.Error("a process exists")
				}
				return nil
			},
			"stream": func() error {
				streamCtx, cancel := context.WithCancel(ctx)
				defer cancel()
				stream, err := f.processes.WatchProcess(streamCtx, &execwirev1.WatchProcessRequest{ProcessId: "none"})
				if err == nil {
					_, _ = stream.Recv() // returns after the log line was written
				}
				return err
			},
		}
		for kind, call := range calls {
			if err := call(); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			lines := log.take()
			want := "trace_id=" + testTraceID + " span_id=" + testSpanID
			if strings.Contains(lines, want) != tc.logged || strings.Contains(lines, "trace_id") != tc.logged || strings.Contains(lines, "secret") {
				t.Errorf("%s, %s: the log is %.300s", name, kind, lines)
			}
			if !strings.Contains(lines, "grpc.method") {
				t.Errorf("%s, %s: the log has no line of the call: %.300s", name, kind, lines)
			}
		}
	}
}
