package listen_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/listen"
)

// crowd is a listener with a limit, and its connections.
type crowd struct {
	t    *testing.T
	lis  *dispatched
	full atomic.Int32
}

func newCrowd(t *testing.T, raw string, most int) *crowd {
	t.Helper()
	c := &crowd{t: t}
	c.lis = mustListenWith(t, raw, listen.Options{Connections: most, Full: func(listen.URL, int) { c.full.Add(1) }})
	return c
}

// member is a connection to a crowd.
type member struct {
	listen.Admission
	t              *testing.T
	client, server net.Conn
	evicted        atomic.Pointer[auth.Error]
}

// connect makes a connection without a request.
func (c *crowd) connect() *member {
	c.t.Helper()
	client := dialFor(c.t, c.lis)
	c.t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(hangGuard))
	server := acceptFrom(c.t, c.lis)
	c.t.Cleanup(func() { _ = server.Close() })
	info, err := listen.AuthInfoOf(server)
	if err != nil {
		c.t.Fatal(err)
	}
	return &member{Admission: info.Admission, t: c.t, client: client, server: server}
}

// of connects and admits for the principal, which must succeed.
func (c *crowd) of(principal string) *member {
	c.t.Helper()
	m := c.connect()
	if err := m.Admit(principal); err != nil {
		c.t.Fatalf("%s gets no place: %v", principal, err)
	}
	return m
}

// busy marks m as in use.
func (m *member) busy() (end func()) {
	return m.Use(func(err error) {
		why, _ := errors.AsType[*auth.Error](err)
		m.evicted.Store(why)
	})
}

func (m *member) expectPlaced(want bool) {
	m.t.Helper()
	if got := m.Admitted(); got != want {
		m.t.Errorf("the connection has a place: %v, want %v", got, want)
	}
}

func (m *member) expectClosed() {
	m.t.Helper()
	if n, err := m.client.Read(make([]byte, 1)); err != io.EOF {
		m.t.Errorf("the client reads %d, %v, want its connection closed", n, err)
	}
}

// expectFull checks that err names the limit and the retry delay.
func expectFull(t *testing.T, err error, most int) {
	t.Helper()
	full, ok := errors.AsType[*auth.Error](err)
	if !ok || full.Kind != auth.KindTooManyConnections {
		t.Fatalf("got %v, want %v", err, auth.KindTooManyConnections)
	}
	if full.Setting != "connections_per_listener" || full.Limit != most || full.RetryAfter <= 0 || !strings.Contains(full.ForCaller, full.Setting) {
		t.Errorf("the error is %+v", full)
	}
}

// The oldest pending connection is closed for one too many, with its uses, at no cost
// for any principal.
func TestPendingConnections_OneTooMany_OldestIsClosed(t *testing.T) {
	for _, raw := range []string{"grpc://127.0.0.1:0", "unix://" + socketPath(t), "ws://127.0.0.1:0"} {
		t.Run(raw[:4], func(t *testing.T) {
			c := newCrowd(t, raw, 2)
			placed := []*member{c.of("a"), c.of("a")}
			first := c.connect() // in addition to the limit
			defer first.busy()()
			second := c.connect()
			first.expectClosed()
			expectFull(t, first.evicted.Swap(nil), 2)
			defer first.busy()() // too late
			expectFull(t, first.evicted.Load(), 2)
			_ = second.server.Close()
			_ = second.server.Close() // counts once, however often
			third := c.connect()
			c.connect()
			third.expectClosed()
			for _, m := range placed {
				m.expectPlaced(true)
			}
			if got := c.full.Load(); got != 2 {
				t.Errorf("Full was called %d times, want 2", got)
			}
		})
	}
}

func TestConnections_AtLimit_HeaviestPrincipalIsEvicted(t *testing.T) {
	const most = 4
	t.Run("longest idle", func(t *testing.T) {
		c := newCrowd(t, "grpc://127.0.0.1:0", most)
		used, idle, busy, last := c.of("a"), c.of("a"), c.of("a"), c.of("a")
		used.busy()()
		defer busy.busy()()
		other := c.of("b")
		other.expectPlaced(true)
		idle.expectPlaced(false)
		for _, m := range []*member{used, busy, last} {
			m.expectPlaced(true)
		}
		c.of("b")
		last.expectPlaced(false)
		used.expectPlaced(true)
	})
	t.Run("in use", func(t *testing.T) {
		c := newCrowd(t, "grpc://127.0.0.1:0", most)
		var all []*member
		for range most {
			m := c.of("a")
			defer m.busy()()
			all = append(all, m)
		}
		c.of("b")
		all[0].expectPlaced(false)
		if why := all[0].evicted.Load(); why == nil {
			t.Error("the user of the evicted connection is not called")
		} else {
			expectFull(t, why, most)
		}
		for _, m := range all[1:] {
			m.expectPlaced(true)
		}
	})
	t.Run("its own that is idle", func(t *testing.T) {
		c := newCrowd(t, "grpc://127.0.0.1:0", most)
		idle := c.of("a")
		for range most - 1 {
			defer c.of("a").busy()()
		}
		defer c.of("a").busy()()
		idle.expectPlaced(false)
		expectFull(t, c.connect().Admit("a"), most) // all are in use
	})
	t.Run("none with as many as the other", func(t *testing.T) {
		c := newCrowd(t, "grpc://127.0.0.1:0", most)
		for _, principal := range []string{"a", "a", "b", "b"} {
			defer c.of(principal).busy()()
		}
		expectFull(t, c.connect().Admit("a"), most)
		c.of("c")
	})
}

// A limit that is lowered closes nothing by itself, and holds for what is admitted later.
func TestConnections_LimitChanges_HoldsForLaterOnes(t *testing.T) {
	c := newCrowd(t, "grpc://127.0.0.1:0", 2)
	held := []*member{c.of("a"), c.of("a")}
	for _, m := range held {
		defer m.busy()()
	}
	expectFull(t, c.connect().Admit("a"), 2)
	c.lis.SetConnections(4)
	held = append(held, c.of("a"), c.of("a"))
	for _, m := range held[2:] {
		defer m.busy()()
	}
	c.lis.SetConnections(1)
	for _, m := range held {
		m.expectPlaced(true)
	}
	expectFull(t, c.connect().Admit("a"), 1) // it takes the place of the pending one of before
	c.of("b")
	held[0].expectPlaced(false)
	held[1].expectPlaced(true)
}

// An evicted connection is admitted again when there is space.
func TestEvictedConnection_IsAdmittedAgain(t *testing.T) {
	c := newCrowd(t, "grpc://127.0.0.1:0", 2)
	evicted, other := c.of("a"), c.of("a")
	defer evicted.busy()()
	defer other.busy()()
	neighbour := c.of("b")
	expectFull(t, evicted.Admit("a"), 2)
	if why := evicted.evicted.Load(); why == nil {
		t.Error("the user of the evicted connection is not called")
	}
	late := make(chan error, 1)
	evicted.Use(func(err error) { late <- err })()
	expectFull(t, <-late, 2) // later users receive it too
	_ = neighbour.server.Close()
	if err := evicted.Admit("a"); err != nil {
		t.Error(err)
	}
	evicted.expectPlaced(true)
}

// Whatever principals do, the limit holds, no principal is rejected while another has two
// connections more, and nothing remains after all are closed.
func TestConnections_Random_BlockNoPrincipal(t *testing.T) {
	const most = 6
	c := newCrowd(t, "grpc://127.0.0.1:0", most)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	placed := func(members []*member) (n int) {
		for _, m := range members {
			if m.Admitted() {
				n++
			}
		}
		return n
	}
	all := map[string][]*member{}
	for range 500 {
		principal := fmt.Sprint(random.IntN(4))
		mine := all[principal]
		if len(mine) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(mine))
			_, _ = mine[i].server.Close(), mine[i].client.Close()
			all[principal] = slices.Delete(mine, i, i+1)
			continue
		}
		own, heaviest, total := placed(mine), 0, 0
		for _, members := range all {
			heaviest, total = max(heaviest, placed(members)), total+placed(members)
		}
		m := c.connect()
		err := m.Admit(principal)
		if err != nil && (heaviest > own+1 || total < most) {
			t.Fatalf("seed %d: a principal with %d connections is refused while another has %d: %v", seed, own, heaviest, err)
		}
		if random.IntN(2) == 0 {
			m.busy()
		}
		all[principal] = append(mine, m)
		total = 0
		for _, members := range all {
			total += placed(members)
		}
		if total > most {
			t.Fatalf("seed %d: %d connections have places", seed, total)
		}
	}
	for _, members := range all {
		for _, m := range members {
			_, _ = m.server.Close(), m.client.Close()
		}
	}
	for range most {
		c.of("new").expectPlaced(true)
	}
}

// Closing a listener closes connections without a request, for which a server
// would wait.
func TestListener_Close_ClosesSilentConnections(t *testing.T) {
	for _, raw := range []string{"grpc://127.0.0.1:0", "unix://" + socketPath(t), "ws://127.0.0.1:0"} {
		t.Run(raw[:4], func(t *testing.T) {
			c := newCrowd(t, raw, 0)
			silent, begun, placed := c.connect(), c.connect(), c.of("a")
			begun.Begin()
			if err := c.lis.Close(); err != nil {
				t.Fatal(err)
			}
			silent.expectClosed()
			for _, m := range []*member{begun, placed} {
				if _, err := m.server.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				if n, err := m.client.Read(make([]byte, 1)); n != 1 {
					t.Errorf("a connection with a request: %v", err)
				}
			}
		})
	}
}
