package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// lockedText is a buffer for concurrent writers.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A client that disconnects is not logged as a failure of the server.
func TestLog_ClientsThatDisconnect_AreNoFailures(t *testing.T) {
	var log lockedText
	f := newFixture(t, func(s *settings) { s.logger = slog.New(slog.NewTextHandler(&log, nil)) })
	clients := 200
	if testing.Short() {
		clients = 50
	}
	for i := range clients {
		ctx, cancel := context.WithCancelCause(f.ctx)
		stream, err := f.processes.RunProcess(ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := &execwirev1.RunStart{Process: withStdin(command(fmt.Sprint("p", i), "cat")), Grace: seconds(0)}
		if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel(errors.New("enough"))
		f.waitClosed(fmt.Sprint("p", i))
	}
	if strings.Contains(log.String(), "unforeseen") {
		t.Errorf("the log is:\n%s", log.String())
	}
}
