package listen

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/confinement"
)

// settingConnections is the name of the limit in errors.
const settingConnections = "connections_per_listener"

// retryWhenFull is the retry delay for errors about the limit.
const retryWhenFull = time.Second

// pendingFraction: the limit for pending connections is this fraction of the
// limit for admitted ones, in addition to it.
const pendingFraction = 8

// limiter limits the connections of one listener. A connection is admitted for
// its principal with the first authenticated request; before that it is pending.
// There are at most limit admitted connections, and an eighth more in total:
// beyond that the oldest pending one is closed, so that unauthenticated clients
// never cost a principal a connection. At the limit of admitted connections one
// of the principal with the most is evicted; see selectVictim.
type limiter struct {
	users    auth.LoopbackUsers
	confined func(confinement.Peer) error // nil: none is
	limit    atomic.Int64                 // 0: no limit
	full     func()                       // called for each closed, evicted or rejected connection; must not block

	mu         sync.Mutex
	closed     bool                       // guarded by mu
	open       int                        // guarded by mu; open connections
	admitted   int                        // guarded by mu; admitted connections
	principals map[string]*principalConns // guarded by mu; by name, those with admitted connections
	pending    *list.List                 // guarded by mu; of *limitedConn, oldest first
}

// principalConns are the admitted connections of a principal. It is guarded by
// [limiter.mu].
type principalConns struct {
	principal  string
	count      int
	idle, busy *list.List // of *limitedConn, least recently used first
}

func newLimiter(u URL, opts Options) *limiter {
	l := &limiter{users: opts.LoopbackUsers, confined: opts.Confined, full: func() {},
		principals: make(map[string]*principalConns), pending: list.New()}
	l.limit.Store(int64(opts.Connections))
	if opts.Full != nil {
		l.full = func() { opts.Full(u, int(l.limit.Load())) }
	}
	return l
}

// accept waits for a connection, and closes the oldest pending one if there are
// too many.
func (l *limiter) accept(next func() (net.Conn, error)) (*limitedConn, error) {
	conn, err := next()
	if err != nil {
		return nil, err
	}
	c := l.identify(conn)
	oldest, evictions, ok := l.add(c)
	if oldest != nil {
		_ = oldest.Conn.Close()
		l.full()
	}
	for _, evict := range evictions {
		evict(l.limitError("this connection without a principal was closed for another one"))
	}
	if !ok {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// add makes c pending, unless the listener is closed, and returns the connection
// to be closed for it, with the functions to be called then.
func (l *limiter) add(c *limitedConn) (oldest *limitedConn, evictions []func(error), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, false
	}
	limit := int(l.limit.Load())
	// None is pending if the limit was lowered, and more are admitted.
	if front := l.pending.Front(); limit > 0 && l.open >= limit+max(limit/pendingFraction, 1) && front != nil {
		oldest = front.Value.(*limitedConn)
		l.remove(oldest)
		oldest.evicted = true
		evictions = oldest.evictions()
	}
	l.open++
	l.relist(c)
	return oldest, evictions, true
}

// admit admits c for the principal, unless it is admitted. The error is an
// [*auth.Error].
func (l *limiter) admit(c *limitedConn, principal string) error {
	evictions, err := l.admitLocked(c, principal)
	if err != nil || evictions != nil {
		l.full()
	}
	for _, evict := range evictions {
		evict(l.limitError("this connection was evicted for another one"))
	}
	return err
}

// admitLocked admits c, and returns the functions to be called for the connection
// that was evicted for it; not nil if there is one.
func (l *limiter) admitLocked(c *limitedConn, principal string) (evictions []func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.removed || c.owner != nil {
		return nil, nil
	}
	if limit := int(l.limit.Load()); limit > 0 && l.admitted >= limit {
		victim := l.selectVictim(principal)
		if victim == nil {
			return nil, l.limitError("this principal has its share, and all are in use: close one")
		}
		evictions = append([]func(error){}, victim.evictions()...)
		l.release(victim)
		victim.evicted = true
		l.relist(victim)
	}
	p := l.principals[principal]
	if p == nil {
		p = &principalConns{principal: principal, idle: list.New(), busy: list.New()}
		l.principals[principal] = p
	}
	p.count++
	l.admitted++
	l.unlist(c)
	c.owner, c.evicted = p, false
	c.admitted.Store(true)
	l.relist(c)
	return evictions, nil
}

// selectVictim returns the connection to evict for one more of the principal: of
// another principal that has the most, and at least two more than the newcomer's,
// the one that is idle for longest; if none is idle, the principal's own idle
// one; then the other's least recently used. The newcomer never ends up with more
// than its victim, so that two principals do not evict each other in turns. nil
// means none. mu is held.
func (l *limiter) selectVictim(principal string) *limitedConn {
	var orders []*list.List
	own, heaviest := l.principals[principal], l.heaviest(principal)
	if heaviest != nil {
		orders = append(orders, heaviest.idle)
	}
	if own != nil {
		orders = append(orders, own.idle)
	}
	if heaviest != nil {
		orders = append(orders, heaviest.busy)
	}
	for _, order := range orders {
		if front := order.Front(); front != nil {
			return front.Value.(*limitedConn)
		}
	}
	return nil
}

// heaviest returns the principal with the most connections, if it has at least
// two more than this one. mu is held.
func (l *limiter) heaviest(principal string) (heaviest *principalConns) {
	most := 1
	if own := l.principals[principal]; own != nil {
		most += own.count
	}
	for _, p := range l.principals {
		if p.principal == principal {
			continue
		}
		if p.count > most || heaviest != nil && p.count == most && p.principal < heaviest.principal {
			heaviest, most = p, p.count
		}
	}
	return heaviest
}

// relist moves c to the end of its list. mu is held.
func (l *limiter) relist(c *limitedConn) {
	order := l.pending
	switch {
	case c.owner != nil && c.busy > 0:
		order = c.owner.busy
	case c.owner != nil:
		order = c.owner.idle
	}
	if c.list == order {
		order.MoveToBack(c.element)
		return
	}
	l.unlist(c)
	c.list, c.element = order, order.PushBack(c)
}

// unlist removes c from its list. mu is held.
func (l *limiter) unlist(c *limitedConn) {
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
	}
}

// release revokes the admission of c, if it is admitted. mu is held.
func (l *limiter) release(c *limitedConn) {
	l.unlist(c)
	p := c.owner
	if p == nil {
		return
	}
	c.owner = nil
	c.admitted.Store(false)
	l.admitted--
	if p.count--; p.count == 0 {
		delete(l.principals, p.principal)
	}
}

// remove stops counting c. mu is held.
func (l *limiter) remove(c *limitedConn) {
	if c.removed || c.list == nil {
		return
	}
	c.removed = true
	l.open--
	l.release(c)
}

// close closes connections without a request and rejects further ones: servers
// wait for pending handshakes before they stop.
func (l *limiter) close() {
	l.mu.Lock()
	l.closed = true
	var silent []*limitedConn
	for e := l.pending.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*limitedConn); !c.requested.Load() {
			silent = append(silent, c)
		}
	}
	l.mu.Unlock()
	for _, c := range silent {
		_ = c.Close()
	}
}

// reopen accepts connections again after close.
func (l *limiter) reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

// disconnect closes all connections.
func (l *limiter) disconnect() {
	for _, c := range l.connections() {
		_ = c.Close()
	}
}

func (l *limiter) connections() (all []*limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lists := []*list.List{l.pending}
	for _, p := range l.principals {
		lists = append(lists, p.idle, p.busy)
	}
	for _, one := range lists {
		for e := one.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*limitedConn))
		}
	}
	return all
}

// limitError is the error of a connection that is not admitted, or was evicted.
func (l *limiter) limitError(reason string) *auth.Error {
	limit := int(l.limit.Load())
	text := fmt.Sprintf("the listener's limit %s of %d connections is reached: %s, or try again in %v", settingConnections, limit, reason, retryWhenFull)
	return &auth.Error{Kind: auth.KindTooManyConnections, Subject: "caller", Err: errors.New(text), ForCaller: text,
		Setting: settingConnections, Limit: limit, RetryAfter: retryWhenFull}
}
