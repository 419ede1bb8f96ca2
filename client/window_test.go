package client

import (
	"errors"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// ignoredWindow is what a server sends that ignores its window.
const ignoredWindow = 2 * MaxUnreadBytes

// unreadEvent returns the event with a seq, of 256 KiB of output.
func unreadEvent(seq uint64) *execwirev1.ProcessEvent {
	data := strings.Repeat("x", 256<<10)
	return stdout(seq, (seq-1)*uint64(len(data)), data)
}

func expectWindowError(t *testing.T, err error) {
	t.Helper()
	var exceeded *WindowError
	if !errors.As(err, &exceeded) || exceeded.ProcessID != "p" || exceeded.LimitBytes != MaxUnreadBytes {
		t.Errorf("the end is %v", err)
	}
}

func TestProcess_ServerIgnoresWindow_Fails(t *testing.T) {
	fake, c := newFake(t, func(stream serverStream) error {
		_, err := stream.Recv()
		for _, m := range []*execwirev1.RunProcessResponse{started(0)} {
			err = firstError(err, stream.Send(m))
		}
		for seq := uint64(1); seq <= ignoredWindow>>18 && err == nil; seq++ {
			err = stream.Send(events(unreadEvent(seq)))
		}
		<-stream.Context().Done()
		return err
	})
	process, err := c.Start(t.Context(), StartOptions{Process: direct("x")})
	if err != nil {
		t.Fatal(err)
	}
	<-process.over
	_, err = process.Wait(t.Context())
	expectWindowError(t, err)
	if len(fake.terminations()) != 1 {
		t.Errorf("%d terminations", len(fake.terminations()))
	}
}

func TestSession_ServerIgnoresWindow_Ends(t *testing.T) {
	_, c := newFakeSessions(t, granted(func(a *fakeAttachment) error {
		var err error
		for seq := uint64(1); seq <= ignoredWindow>>18 && err == nil; seq++ {
			err = a.events("p", unreadEvent(seq))
		}
		<-a.stream.Context().Done()
		return err
	}))
	s, err := c.AttachSession(t.Context(), SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-s.over
	expectWindowError(t, s.Detach(t.Context()))
}

// A server can name any number of processes, each within its window, and release them.
func TestSessionFeed_ManyProcesses_AreBounded(t *testing.T) {
	f := newSessionFeed(nil)
	if err := f.add("p", []*execwirev1.ProcessEvent{unreadEvent(1)}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.take(); !ok || err != nil || f.queued != 0 {
		t.Errorf("%d bytes are queued, %v", f.queued, err)
	}
	f.queued = maxWindowBytes - 2*eventBytes
	if err := f.release("p"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"events":  f.add("q", []*execwirev1.ProcessEvent{stdout(1, 0, "x")}),
		"release": f.release("q"),
	} {
		var exceeded *WindowError
		if !errors.As(err, &exceeded) || exceeded.ProcessID != "q" || exceeded.LimitBytes != maxWindowBytes {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnreadLimit(t *testing.T) {
	for _, test := range []struct {
		bytes, events uint64
		limit         int
	}{
		{1 << 20, 50_000, MaxUnreadBytes}, // the defaults of a server
		{0, 0, MaxUnreadBytes},
		{64 << 20, 1000, 64<<20 + 1000*eventBytes + unreadSlack},
		{1 << 62, 0, maxWindowBytes},
		{0, 1 << 62, maxWindowBytes},
	} {
		if got := unreadLimit(test.bytes, test.events); got != test.limit {
			t.Errorf("windows of %d bytes and %d events: %d, want %d", test.bytes, test.events, got, test.limit)
		}
	}
}
