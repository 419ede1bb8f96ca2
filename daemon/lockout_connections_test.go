package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/wsconn"
)

// keepInUse has a stream on conn until the test ends, and returns its failure.
func keepInUse(t *testing.T, ctx context.Context, conn *grpc.ClientConn) (ended func() error) {
	t.Helper()
	watch, err := execwirev1.NewFileSystemServiceClient(conn).WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: t.TempDir()})
	if err == nil {
		_, err = watch.Recv() // it has started
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		for {
			if _, err := watch.Recv(); err != nil {
				return err
			}
		}
	}
}

// expectNoPlace wants err to name the limit and when to retry.
func expectNoPlace(t *testing.T, err error, most int) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || reason(err) != "TOO_MANY_CONNECTIONS" || !strings.Contains(err.Error(), "connections_per_listener") {
		t.Fatalf("the call failed with %v", err)
	}
	var retry, quota bool
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() > 0
		case *errdetails.QuotaFailure:
			quota = d.GetViolations()[0].GetSubject() == "connections_per_listener"
		case *errdetails.ErrorInfo:
			if got := d.GetMetadata()["limit"]; got != fmt.Sprint(most) {
				t.Errorf("the metadata say that the limit is %s, want %d", got, most)
			}
		}
	}
	if !retry || !quota {
		t.Errorf("the details of %v are %v", err, status.Convert(err).Details())
	}
}

// lockForTwo has the principals attacker and neighbour, and few connections.
func lockForTwo(t *testing.T, connections int) *locked {
	return lock(t, func(cfg *config.Config) { cfg.Connections = config.Count(connections) }, func(l *locked) string {
		return l.principal("attacker", `"all"`) + l.principal("neighbour", `"all"`)
	})
}

// Idle connections of one principal keep neither another one nor itself out.
func TestConnections_IdleOfOnePrincipal_LockNobodyOut(t *testing.T) {
	for name, listener := range map[string]int{"grpc": onGRPC, "grpcs": onTLS} {
		t.Run(name, func(t *testing.T) {
			l := lockForTwo(t, 4)
			var all []*grpc.ClientConn
			for range 10 {
				conn := l.dial(listener)
				if err := list(l.as("attacker"), conn); err != nil {
					t.Fatal(err)
				}
				all = append(all, conn)
			}
			if err := list(l.as("neighbour"), l.dial(listener)); err != nil {
				t.Error(err)
			}
			for _, conn := range all { // an evicted connection is of use again
				err := list(l.as("attacker"), conn)
				if status.Code(err) == codes.Unavailable { // sent before the client saw the end
					err = list(l.as("attacker"), conn)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Of a principal whose connections are all in use the one gives way that was used least
// recently. Its calls end with the name of the limit and when to retry, and so do
// those of a connection that gets no place.
func TestConnections_InUseOfOnePrincipal_GiveWayWithTheNameOfTheLimit(t *testing.T) {
	const most = 3
	l := lockForTwo(t, most)
	var ended []func() error
	var conns []*grpc.ClientConn
	for range most {
		conn := l.dial(onGRPC)
		conns = append(conns, conn)
		ended = append(ended, keepInUse(t, l.as("attacker"), conn))
	}
	expectNoPlace(t, list(l.as("attacker"), l.dial(onGRPC)), most)
	neighbour := l.dial(onGRPC)
	keepInUse(t, l.as("neighbour"), neighbour)
	expectNoPlace(t, ended[0](), most)
	expectNoPlace(t, list(l.as("attacker"), conns[0]), most)
	for _, conn := range append(conns[1:], neighbour) {
		if err := list(l.as("attacker"), conn); err != nil { // the connection is whose it was
			t.Error(err)
		}
	}
}

// openFew serves attacker and neighbour over few websockets.
func openFew(t *testing.T, connections int) *opened {
	return openForTwo(t, func(cfg *config.Config) { cfg.Connections = config.Count(connections) })
}

// Websockets of one principal that have sessions do not keep another one out: the one
// that is idle for longest is closed with the name of the limit. One more of the same
// principal is refused with it.
func TestWebsockets_OfOnePrincipal_GiveWayWithTheNameOfTheLimit(t *testing.T) {
	const most = 3
	o := openFew(t, most)
	var all []*rpc
	for range most {
		all = append(all, o.meet(bearing(tokenOf("attacker"))))
	}
	_, err := o.dial(wsconn.DialOptions{Header: bearing(tokenOf("attacker"))})
	refused, ok := errors.AsType[*wsconn.RefusedError](err)
	if !ok || refused.Status != http.StatusTooManyRequests || !strings.Contains(refused.Text, "connections_per_listener") || !strings.Contains(refused.Text, "try again in") {
		t.Errorf("one too many is refused with %v", err)
	}
	all[0].start("p", "true") // it is the last that was used
	neighbour := o.meet(bearing(tokenOf("neighbour")))
	_, err = all[1].conn.Receive()
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); !ok || closed.Code != 1013 || closed.Reason != "connections_per_listener is reached: try again in 1s" {
		t.Errorf("the evicted websocket ended with %v", err)
	}
	for _, c := range []*rpc{all[0], all[2], neighbour} {
		if answer := c.ask("environment/status", map[string]any{}); answer["result"] == nil {
			t.Errorf("a websocket that was not evicted is answered %v", answer)
		}
	}
}

// A websocket without a session is idle, and gives way to one of the same principal.
func TestWebsockets_WithoutSession_GiveWayToTheirPrincipal(t *testing.T) {
	o := openFew(t, 3)
	var all []*rpc
	for range 3 {
		c, err := o.dial(wsconn.DialOptions{Header: bearing(tokenOf("attacker"))})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		o.meet(bearing(tokenOf("attacker")))
		c.expectClosed(1013)
	}
}
