package rendezvous

import (
	"context"
	"net/http"
	"time"
)

// directory finds executors, by their records and by the routes of this node.
type directory struct {
	routes   *routeTable
	registry *registry
}

// find returns the record of an executor that is connected, or may
// reconnect.
func (d *directory) find(ctx context.Context, id string) (Record, error) {
	record, revision, err := d.registry.presence.Get(ctx, id)
	if route := d.routes.lookup(id); err != nil && route != nil && route.isConnected() {
		return Record{Executor: id, Node: d.registry.node}, nil
	}
	switch {
	case err != nil:
		return Record{}, err
	case revision == 0 || record.Connected == 0:
		return Record{}, newRefusal(http.StatusNotFound, codeExecutorNotFound,
			"executor %s is unknown: start it with execwire serve --remote and --executor-id %s", id, id)
	case d.registry.online(record):
		return record, nil
	}
	if route := d.routes.lookup(id); route != nil && route.isExpected() {
		record.Node = d.registry.node
		return record, nil
	}
	return Record{}, newRefusal(http.StatusNotFound, codeExecutorOffline,
		"executor %s is not connected; it was last seen at %s", id, record.LastSeen.UTC().Format(time.RFC3339))
}

// locate returns the record of an executor that is connected to a node of this hub or, if
// expected, expected back at this one.
func (d *directory) locate(ctx context.Context, id string, expected bool) (Record, error) {
	if route := d.routes.lookup(id); route != nil {
		if route.isConnected() || expected && route.isExpected() {
			return Record{Executor: id, Node: d.registry.node}, nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, presenceTimeout, errPresenceSlow)
	defer cancel()
	record, err := d.find(ctx, id)
	if err == nil && record.Node == d.registry.node && !d.isInstalled(id) {
		err = newRefusal(http.StatusNotFound, codeExecutorOffline, "executor %s is not connected: try again", id)
	}
	return record, err
}

// isInstalled reports whether an executor is connected, after waiting for an
// install in progress.
func (d *directory) isInstalled(id string) bool {
	route := d.routes.lookup(id)
	if route == nil {
		return false
	}
	route.installMu.Lock()
	defer route.installMu.Unlock()
	return route.isConnected()
}

// checkReachable rejects a harness whose executor is not connected to this node.
// A harness that retransmits may also come during the executor's grace period.
func (d *directory) checkReachable(ctx context.Context, id string, resumable bool) error {
	record, err := d.locate(ctx, id, resumable)
	if err == nil && record.Node != d.registry.node {
		return newRefusal(http.StatusMisdirectedRequest, codeExecutorElsewhere,
			"executor %s is connected to another node of this hub, %s: ask POST /cloud/executor/%s/connect for its URL", id, record.URL, id)
	}
	return err
}

// install makes an epoch that of the executor and adds the connection to the
// route before the websocket is accepted, because a harness may come as soon as
// the record shows the executor. It is serialized, so that of two epochs the
// later one remains.
func (d *directory) install(ctx context.Context, route *executorRoute, id string, epoch uint64, principal, base string) (c *peerConn, tookOver bool, err error) {
	route.installMu.Lock()
	defer route.installMu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, presenceTimeout, errPresenceSlow)
	defer cancel()
	reg, err := d.registry.connect(ctx, id, epoch, base)
	if err != nil {
		return nil, false, err
	}
	c = newPeerConn(principal, reg.instance != "")
	c.capacity = reg.streams
	return c, route.connectExecutor(c, reg.instance), nil
}

func (d *directory) expire() {
	d.registry.expireAll()
	for _, route := range d.routes.all() {
		route.endIdleStreams()
		d.routes.release(route, 0)
	}
}
