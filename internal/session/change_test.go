package session_test

import (
	"testing"
	"time"

	"github.com/execwire/execwire/internal/session"
)

func TestOnChange_IsCalled(t *testing.T) {
	changes := make(chan struct{}, 16)
	f := newFixture(t, session.Config{ClosedRetention: time.Millisecond, OnChange: func() { changes <- struct{}{} }})
	awaitChange := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-f.ctx.Done():
			t.Fatalf("OnChange was not called after the process %s", what)
		}
	}
	p := f.start(t, "p", "/bin/cat")
	awaitChange("was started")
	if err := p.CloseStdin(f.ctx); err != nil {
		t.Fatal(err)
	}
	awaitChange("has closed")
	awaitChange("was removed")
	_, err := f.Process("p")
	wantKind(t, err, session.ProcessNotFound)
}
