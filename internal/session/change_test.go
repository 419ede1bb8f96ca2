package session_test

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
)

// TestOnChange_IsCalled waits for each change in turn: were one not told, the next
// receive would wait in vain.
func TestOnChange_IsCalled(t *testing.T) {
	changes := make(chan struct{}, 16)
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond, OnChange: func() { changes <- struct{}{} }})
	told := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-f.ctx.Done():
			t.Fatalf("nobody was told that the process %s", what)
		}
	}
	p := f.start(t, "p", "/bin/cat")
	told("was started")
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	told("has closed")
	told("was forgotten")
	_, err := f.Process("p")
	wantKind(t, err, session.ProcessNotFound)
}
