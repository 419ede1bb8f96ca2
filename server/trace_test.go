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
	someTrace = "0af7651916cd43dd8448eb211c80319c"
	someSpan  = "b7ad6b7169203331"
)

// lockedLog is a log that is read while handlers still write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns what was written since.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// The line of a call is found from the trace of its caller, if what that says of
// it is well-formed; nothing else of it is in the log.
func TestTheLogSaysWhichTraceACallIsOf(t *testing.T) {
	log := new(lockedLog)
	f := newFixture(t, func(s *settings) {
		s.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	parent := "00-" + someTrace + "-" + someSpan + "-01"
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
					t.Error("there is a process")
				}
				return nil
			},
			"stream": func() error {
				streamCtx, cancel := context.WithCancel(ctx)
				defer cancel()
				stream, err := f.processes.WatchProcess(streamCtx, &execwirev1.WatchProcessRequest{ProcessId: "none"})
				if err == nil {
					_, _ = stream.Recv() // ends with the call, when its line was written
				}
				return err
			},
		}
		for kind, call := range calls {
			if err := call(); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			said := log.take()
			want := "trace_id=" + someTrace + " span_id=" + someSpan
			if strings.Contains(said, want) != tc.logged || strings.Contains(said, "trace_id") != tc.logged || strings.Contains(said, "secret") {
				t.Errorf("%s, %s: the log says %.300s", name, kind, said)
			}
			if !strings.Contains(said, "grpc.method") {
				t.Errorf("%s, %s: the log does not tell of the call: %.300s", name, kind, said)
			}
		}
	}
}
