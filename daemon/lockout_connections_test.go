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
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/wsconn"
)

// holdStream opens a stream on conn until the test ends. ended returns its error.
func holdStream(t *testing.T, ctx context.Context, conn *grpc.ClientConn) (ended func() error) {
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

// expectConnectionLimit expects an error that names the limit and has a retry delay.
func expectConnectionLimit(t *testing.T, err error, most int) {
	t.Helper()
	if status.Code(err) != codes.ResourceExhausted || errorinfo.Of(err).GetReason() != "TOO_MANY_CONNECTIONS" || !strings.Contains(err.Error(), "connections_per_listener") {
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
				t.Errorf("the limit in the metadata is %s, want %d", got, most)
			}
		}
	}
	if !retry || !quota {
		t.Errorf("the details of %v are %v", err, status.Convert(err).Details())
	}
}

// lockForTwo runs a daemon with the principals attacker and neighbour and few connections.
func lockForTwo(t *testing.T, connections int) *locked {
	return lock(t, func(cfg *config.Config) { cfg.Connections = config.Count(connections) }, func(l *locked) string {
		return l.principal("attacker", `"all"`) + l.principal("neighbour", `"all"`)
	})
}

// Idle connections of one principal do not block connections of another one or its own.
func TestConnections_IdleOfOnePrincipal_DoNotBlockOthers(t *testing.T) {
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
			for _, conn := range all { // an evicted connection can be used again
				err := list(l.as("attacker"), conn)
				if status.Code(err) == codes.Unavailable { // sent before the client noticed the end
					err = list(l.as("attacker"), conn)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// If all connections of a principal are in use, the least recently used one is evicted for
// another principal. Its calls fail with the name of the limit and a retry delay, and so do
// calls on a connection that is rejected.
func TestConnections_InUseOfOnePrincipal_AreEvictedWithLimitName(t *testing.T) {
	const most = 3
	l := lockForTwo(t, most)
	var ended []func() error
	var conns []*grpc.ClientConn
	for range most {
		conn := l.dial(onGRPC)
		conns = append(conns, conn)
		ended = append(ended, holdStream(t, l.as("attacker"), conn))
	}
	expectConnectionLimit(t, list(l.as("attacker"), l.dial(onGRPC)), most)
	neighbour := l.dial(onGRPC)
	holdStream(t, l.as("neighbour"), neighbour)
	expectConnectionLimit(t, ended[0](), most)
	expectConnectionLimit(t, list(l.as("attacker"), conns[0]), most)
	for _, conn := range append(conns[1:], neighbour) {
		if err := list(l.as("attacker"), conn); err != nil { // the connection was not evicted
			t.Error(err)
		}
	}
}

// openFew runs a daemon with the principals attacker and neighbour and few websockets.
func openFew(t *testing.T, connections int) *opened {
	return openForTwo(t, func(cfg *config.Config) { cfg.Connections = config.Count(connections) })
}

// Websockets of one principal with sessions do not block another principal: the one that is
// idle for longest is closed with the name of the limit. One more of the same principal is
// rejected with it.
func TestWebsockets_OfOnePrincipal_AreEvictedWithLimitName(t *testing.T) {
	const most = 3
	o := openFew(t, most)
	var all []*rpc
	for range most {
		all = append(all, o.dialSession(bearerHeader(tokenOf("attacker"))))
	}
	_, err := o.dial(wsconn.DialOptions{Header: bearerHeader(tokenOf("attacker"))})
	refused, ok := errors.AsType[*wsconn.RefusedError](err)
	if !ok || refused.Status != http.StatusTooManyRequests || !strings.Contains(refused.Text, "connections_per_listener") || !strings.Contains(refused.Text, "try again in") {
		t.Errorf("one too many fails with %v", err)
	}
	all[0].start("p", "true") // it becomes the most recently used
	neighbour := o.dialSession(bearerHeader(tokenOf("neighbour")))
	_, err = all[1].conn.Receive()
	if closed, ok := errors.AsType[*wsconn.ClosedError](err); !ok || closed.Code != 1013 || closed.Reason != "connections_per_listener is reached: try again in 1s" {
		t.Errorf("the evicted websocket ended with %v", err)
	}
	for _, c := range []*rpc{all[0], all[2], neighbour} {
		if answer := c.ask("environment/status", map[string]any{}); answer["result"] == nil {
			t.Errorf("a websocket that was not evicted receives %v", answer)
		}
	}
}

// A websocket without a session is idle, and another one of the same principal replaces it.
func TestWebsockets_WithoutSession_AreReplacedBySamePrincipal(t *testing.T) {
	o := openFew(t, 3)
	var all []*rpc
	for range 3 {
		c, err := o.dial(wsconn.DialOptions{Header: bearerHeader(tokenOf("attacker"))})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		o.dialSession(bearerHeader(tokenOf("attacker")))
		c.expectClosed(1013)
	}
}
