package rendezvous

import (
	"maps"
	"slices"
	"sync"
)

// routeTable has the routes of all executors. It may be used concurrently.
type routeTable struct {
	shared *hubState

	mu      sync.Mutex
	routes  map[string]*executorRoute // guarded by mu; by executor
	closed  bool                      // guarded by mu
	serving sync.WaitGroup            // connections; added to with mu held and not closed
}

func newRouteTable(shared *hubState) *routeTable {
	return &routeTable{shared: shared, routes: make(map[string]*executorRoute)}
}

func (t *routeTable) all() []*executorRoute {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.routes))
}

// acquire returns the route of an executor for one more connection; nil if the
// hub is closing. The caller must call release and serving.Done.
func (t *routeTable) acquire(id string) *executorRoute {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	route := t.routes[id]
	if route == nil {
		route = newExecutorRoute(t.shared, id)
		t.routes[id] = route
	}
	route.conns++
	t.serving.Add(1)
	return route
}

// release removes connections from a route, and removes the route if it is idle.
func (t *routeTable) release(route *executorRoute, conns int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if route.conns -= conns; route.conns == 0 && t.routes[route.id] == route && route.idle() {
		delete(t.routes, route.id)
	}
}

// lookup returns the route of an executor, or nil.
func (t *routeTable) lookup(id string) *executorRoute {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.routes[id]
}

// connections returns the number of websockets.
func (t *routeTable) connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, route := range t.routes {
		n += route.conns
	}
	return n
}

// close rejects further connections and closes all routes. It reports whether it
// is the first call.
func (t *routeTable) close() (first bool) {
	t.mu.Lock()
	first = !t.closed
	t.closed = true
	t.mu.Unlock()
	for _, route := range t.all() {
		route.close()
	}
	return first
}
