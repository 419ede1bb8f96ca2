package listen

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// settingConnections is the name of the limit for errors.
const settingConnections = "connections_per_listener"

// retryWhenFull is when it is worth trying again what was refused because there are
// as many connections as there may be.
const retryWhenFull = time.Second

// newcomersPart is what part of the limit is besides for connections that have no
// place yet.
const newcomersPart = 8

// limiter bounds the connections of one listener. A connection has a place, of its
// principal, from the first request that is authenticated on it; before that it is a
// newcomer. There are at most as many places as the limit, and an eighth more
// connections: the oldest newcomer is closed for one beyond that, so that newcomers
// never cost a principal a connection. When all places are taken the principal with
// the most gives one up; see choose.
type limiter struct {
	users    auth.LoopbackUsers
	confined func(auth.Peer, func() bool) error // nil: none is
	most     int                                // 0: no limit
	full     func()                             // is called for each that lost or got no place; must not block

	mu        sync.Mutex
	closed    bool               // guarded by mu
	open      int                // guarded by mu; connections that are not closed
	placed    int                // guarded by mu; those of them that have a place
	holders   map[string]*holder // guarded by mu; by principal, of those that have places
	newcomers *list.List         // guarded by mu; of *limitedConn, oldest first
}

// holder is a principal with its places. It is guarded by [limiter.mu].
type holder struct {
	principal  string
	count      int
	idle, busy *list.List // of *limitedConn, in the order in which they were last used
}

func newLimiter(u URL, locks Locks) *limiter {
	l := &limiter{users: locks.LoopbackUsers, confined: locks.Confined, most: locks.Connections, full: func() {},
		holders: make(map[string]*holder), newcomers: list.New()}
	if locks.Full != nil {
		l.full = func() { locks.Full(u) }
	}
	return l
}

// accept waits for a connection, and closes the oldest newcomer if there are too many.
func (l *limiter) accept(next func() (net.Conn, error)) (*limitedConn, error) {
	conn, err := next()
	if err != nil {
		return nil, err
	}
	c := l.identify(conn)
	oldest, ok := l.add(c)
	if oldest != nil {
		_ = oldest.Conn.Close()
		l.full()
	}
	if !ok {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// add makes c a newcomer, unless the listener is closed, and returns the one that has
// to be closed for it.
func (l *limiter) add(c *limitedConn) (oldest *limitedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false
	}
	if l.most > 0 && l.open >= l.most+max(l.most/newcomersPart, 1) {
		oldest = l.newcomers.Front().Value.(*limitedConn) // there are fewer places
		l.remove(oldest)
	}
	l.open++
	l.sort(c)
	return oldest, true
}

// admit gives c a place of the principal, unless it has one. The error is an
// [*auth.Error].
func (l *limiter) admit(c *limitedConn, principal string) error {
	evictions, err := l.place(c, principal)
	if err != nil || evictions != nil {
		l.full()
	}
	for _, evict := range evictions {
		evict(l.reached("this connection gives way to that of a principal that has fewer, or has not been used for longest"))
	}
	return err
}

// place returns what is to be called of the connection that lost its place to c, not
// nil if there is one.
func (l *limiter) place(c *limitedConn, principal string) (evictions []func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.gone || c.holder != nil {
		return nil, nil
	}
	if l.most > 0 && l.placed >= l.most {
		out := l.choose(principal)
		if out == nil {
			return nil, l.reached("this principal has its part of them, and all are in use: close one")
		}
		evictions = append([]func(error){}, out.evictions()...)
		l.leave(out)
		out.evicted = true
		l.sort(out)
	}
	h := l.holders[principal]
	if h == nil {
		h = &holder{principal: principal, idle: list.New(), busy: list.New()}
		l.holders[principal] = h
	}
	h.count++
	l.placed++
	l.unlist(c)
	c.holder, c.evicted = h, false
	c.placed.Store(true)
	l.sort(c)
	return evictions, nil
}

// choose returns the connection that gives its place to one more of the principal: of
// another one that has the most, if it then has no fewer than the newcomer's, the one
// that is idle for longest; if none is, the principal's own; then the other's that was
// used least recently. Who is given a place has no more than who gives it, so that two
// do not take it from each other in turns. nil is none. mu is held.
func (l *limiter) choose(principal string) *limitedConn {
	var orders []*list.List
	own, heaviest := l.holders[principal], l.heaviest(principal)
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

// heaviest returns the principal with the most places that has two more than this one.
// mu is held.
func (l *limiter) heaviest(principal string) (heaviest *holder) {
	most := 1
	if own := l.holders[principal]; own != nil {
		most += own.count
	}
	for _, h := range l.holders {
		if h.principal == principal {
			continue
		}
		if h.count > most || heaviest != nil && h.count == most && h.principal < heaviest.principal {
			heaviest, most = h, h.count
		}
	}
	return heaviest
}

// sort puts c at the end of the list where it belongs. mu is held.
func (l *limiter) sort(c *limitedConn) {
	order := l.newcomers
	switch {
	case c.holder != nil && c.uses > 0:
		order = c.holder.busy
	case c.holder != nil:
		order = c.holder.idle
	}
	if c.order == order {
		order.MoveToBack(c.element)
		return
	}
	l.unlist(c)
	c.order, c.element = order, order.PushBack(c)
}

// unlist takes c off its list. mu is held.
func (l *limiter) unlist(c *limitedConn) {
	if c.order != nil {
		c.order.Remove(c.element)
		c.order, c.element = nil, nil
	}
}

// leave takes the place of c, if it has one. mu is held.
func (l *limiter) leave(c *limitedConn) {
	l.unlist(c)
	h := c.holder
	if h == nil {
		return
	}
	c.holder = nil
	c.placed.Store(false)
	l.placed--
	if h.count--; h.count == 0 {
		delete(l.holders, h.principal)
	}
}

// remove counts c no more. mu is held.
func (l *limiter) remove(c *limitedConn) {
	if c.gone || c.order == nil {
		return
	}
	c.gone = true
	l.open--
	l.leave(c)
}

// close closes the connections on which no request has come, and lets no more in:
// programs that serve them wait for their handshakes before they end.
func (l *limiter) close() {
	l.mu.Lock()
	l.closed = true
	var silent []*limitedConn
	for e := l.newcomers.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*limitedConn); !c.begun.Load() {
			silent = append(silent, c)
		}
	}
	l.mu.Unlock()
	for _, c := range silent {
		_ = c.Close()
	}
}

// reached is the error of a connection that gets no place, or lost it.
func (l *limiter) reached(why string) *auth.Error {
	text := fmt.Sprintf("the listener has as many connections as %s allows, %d; %s, or try again in %v", settingConnections, l.most, why, retryWhenFull)
	return &auth.Error{Kind: auth.KindTooManyConnections, Subject: "caller", Err: errors.New(text), ForCaller: text,
		Setting: settingConnections, Limit: l.most, RetryAfter: retryWhenFull}
}
