package gateway

import (
	"context"
	"net/url"
	"strings"
	"sync"
)

// turn is when a request is carried out: after those that came before it and
// that it must not overtake.
type turn struct {
	after []<-chan struct{}
	done  []chan struct{} // closed when it was carried out
	leave []func()        // called then
}

// wait blocks until it is the request's turn.
func (t *turn) wait(ctx context.Context) error {
	for _, before := range t.after {
		select {
		case <-before:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// end lets those come that wait for the request.
func (t *turn) end() {
	for _, done := range t.done {
		close(done)
	}
	for _, leave := range t.leave {
		leave()
	}
}

// follow has the request come after what is in last, unless that is nil, and
// puts it in its place.
func (t *turn) follow(last *<-chan struct{}) {
	if *last != nil {
		t.after = append(t.after, *last)
	}
	done := make(chan struct{})
	t.done = append(t.done, done)
	*last = done
}

// processCall is a call that names a process.
type processCall interface {
	call
	// order returns the process as the client names it, and what the call does
	// that others must not overtake.
	order() (processID string, place place)
}

// place is what a call is in the order of those on one process.
type place int

const (
	placeAny    place = iota // comes after starts
	placeStart               // comes after starts; the others after it
	placeWrite               // comes after starts and writes
	placeResize              // comes after starts and resizes
)

// fileCall is a call that names paths.
type fileCall interface {
	call
	// touches returns the paths, absolute and clean, and whether the call changes
	// what is there.
	touches() (paths []string, changes bool)
}

// enter gives the request its turn. It is called in the order in which requests
// came.
func (c *connection) enter(r *request) {
	if named, ok := r.call.(handleCall); ok {
		id, changes := named.usesHandle()
		c.handles.order.enter(&r.turn, []string{id}, changes)
	}
	if named, ok := r.call.(watchCall); ok {
		c.watches.order.enter(&r.turn, []string{string(named.watchID())}, true)
	}
	if named, ok := r.call.(streamCall); ok {
		c.streams.order.enter(&r.turn, []string{url.PathEscape(named.streamID())}, true) // no path
	}
	if named, ok := r.call.(*coreStreamParams); ok {
		c.enterStream(named)
	}
	switch named := r.call.(type) {
	case processCall:
		c.enterProcess(r, named)
	case fileCall:
		paths, changes := named.touches()
		c.files.enter(&r.turn, paths, changes)
	case *httpRequestParams:
		c.httpPlaces.enter(named)
	case *coreCancelParams:
		c.streams.cancel(named.StreamID)
	}
}

func (c *connection) enterProcess(r *request, named processCall) {
	id, place := named.order()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.record(coreProcessID(id))
	p.users++
	r.turn.leave = append(r.turn.leave, func() { c.leaveProcess(p) })
	if place == placeStart {
		r.turn.follow(&p.starting)
		return
	}
	if p.starting != nil {
		r.turn.after = append(r.turn.after, p.starting)
	}
	switch place {
	case placeWrite:
		r.turn.follow(&p.writing)
	case placeResize:
		r.turn.follow(&p.resizing)
	}
}

// leaveProcess notes that a request that named the process was carried out.
func (c *connection) leaveProcess(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.users--
	c.forget(p)
}

// fileOrder has calls on files come after those on the same files that came
// before, unless neither changes anything: a client that does not wait for
// answers finds what it would have found if it had.
type fileOrder struct {
	mu       sync.Mutex
	inFlight map[*fileTurn]struct{} // guarded by mu
}

type fileTurn struct {
	paths   []string
	changes bool
	done    chan struct{}
}

func (o *fileOrder) enter(t *turn, paths []string, changes bool) {
	own := &fileTurn{paths: paths, changes: changes, done: make(chan struct{})}
	t.done = append(t.done, own.done)
	t.leave = append(t.leave, func() { o.leave(own) })
	o.mu.Lock()
	defer o.mu.Unlock()
	for other := range o.inFlight {
		if (own.changes || other.changes) && overlap(own.paths, other.paths) {
			t.after = append(t.after, other.done)
		}
	}
	if o.inFlight == nil {
		o.inFlight = make(map[*fileTurn]struct{})
	}
	o.inFlight[own] = struct{}{}
}

func (o *fileOrder) leave(own *fileTurn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.inFlight, own)
}

// overlap reports whether a path of one list is one of the other, or above or
// below it.
func overlap(some, others []string) bool {
	for _, one := range some {
		for _, other := range others {
			if isWithin(one, other) || isWithin(other, one) {
				return true
			}
		}
	}
	return false
}

func isWithin(path, directory string) bool {
	rest, ok := strings.CutPrefix(path, directory)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(directory, "/"))
}
