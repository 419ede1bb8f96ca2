package session_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/session"
)

// box is a resource with a counter.
type box struct {
	emptied func()

	mu     sync.Mutex
	things int
	closed chan struct{}
}

func newBox(_ *session.Session, emptied func()) *box {
	return &box{emptied: emptied, closed: make(chan struct{})}
}

func (b *box) IsEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.things == 0
}

func (b *box) Close() {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
}

func (b *box) add(n int) {
	b.mu.Lock()
	b.things += n
	empty := b.things == 0
	b.mu.Unlock()
	if empty {
		b.emptied()
	}
}

var boxes = session.NewResourceKind(newBox)

// put increments the counter in the box of a session.
func put(t *testing.T, s *session.Session) *box {
	t.Helper()
	var b *box
	err := boxes.Add(s, func(found *box) error {
		b = found
		b.add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestResource_KeepsDefaultSession(t *testing.T) {
	hasBox := func(s *session.Session) bool { _, ok := boxes.Find(s); return ok }
	f := newFixture(t, session.Config{})
	other, err := f.registry.Open("tester", "", session.AccessOwner)
	if err != nil {
		t.Fatal(err)
	}
	b := put(t, f.Session)
	if again := put(t, other); again != b {
		t.Error("another opening of the same empty session has a box of its own")
	}
	if found, ok := boxes.Find(f.Session); !ok || found != b {
		t.Error("the box is not found again")
	}
	if _, ok := session.NewResourceKind(newBox).Find(f.Session); ok {
		t.Error("the box is found under another kind")
	}
	if n := f.registry.Defaults(); n != 1 {
		t.Errorf("%d sessions remain", n)
	}
	b.add(-2)
	if n := f.registry.Defaults(); n != 0 || hasBox(f.Session) {
		t.Errorf("%d sessions remain without content", n)
	}
	refused := errors.New("refused")
	if err := boxes.Add(f.Session, func(*box) error { return refused }); err != refused {
		t.Errorf("Add = %v", err)
	}
	if n := f.registry.Defaults(); n != 0 {
		t.Errorf("%d sessions remain for a failed addition", n)
	}
}

func TestResource_SessionCloses_IsClosed(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	leased, ofDefault := put(t, c.a.Session()), put(t, f.Session)
	for _, end := range []struct {
		id string
		b  *box
		s  *session.Session
	}{{c.id, leased, c.a.Session()}, {"", ofDefault, f.Session}} {
		if err := f.registry.CloseSession(f.ctx, "tester", end.id); err != nil {
			t.Fatal(err)
		}
		select {
		case <-end.b.closed:
		default:
			t.Errorf("session %q has ended but its resource is not closed", end.id)
		}
	}
	err := boxes.Add(c.a.Session(), func(*box) error { return nil })
	wantKind(t, err, session.SessionClosed)
	if b := put(t, f.Session); b == ofDefault {
		t.Error("the next default session has the box of the previous one")
	}
}

func TestResource_RegistryCloses_IsClosed(t *testing.T) {
	f := newFixture(t, session.Config{})
	c := f.newClient(t, session.AttachRequest{})
	leased, ofDefault := put(t, c.a.Session()), put(t, f.Session)
	f.registry.Drain()
	err := boxes.Add(f.Session, func(*box) error { return nil })
	wantKind(t, err, session.Draining)
	if err := f.registry.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	<-leased.closed
	<-ofDefault.closed
}

// blockingResource is a resource whose Close blocks until a process has ended.
type blockingResource struct{ until <-chan struct{} }

func (blockingResource) IsEmpty() bool { return false }

func (s blockingResource) Close() { <-s.until }

func TestCloseSession_SlowResource_EndsProcesses(t *testing.T) {
	f := newFixture(t, session.Config{})
	p := f.start(t, "p", "/bin/cat")
	kind := session.NewResourceKind(func(*session.Session, func()) blockingResource { return blockingResource{p.Closed()} })
	if err := kind.Add(f.Session, func(blockingResource) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := f.registry.CloseSession(f.ctx, "tester", ""); err != nil {
		t.Error(err)
	}
}
