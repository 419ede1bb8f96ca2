package files

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// lostWatches is a server whose watches end at once.
type lostWatches struct {
	execwirev1.FileSystemServiceClient
}

func (lostWatches) AwaitPaths(context.Context, *execwirev1.AwaitPathsRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse], error) {
	return fakeStream[execwirev1.AwaitPathsResponse]{next: func() (*execwirev1.AwaitPathsResponse, error) {
		return &execwirev1.AwaitPathsResponse{}, nil
	}}, nil
}

func (lostWatches) WatchDirectory(context.Context, *execwirev1.WatchDirectoryRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse], error) {
	messages := 0
	return fakeStream[execwirev1.WatchDirectoryResponse]{next: func() (*execwirev1.WatchDirectoryResponse, error) {
		if messages++; messages > 1 {
			return nil, io.EOF
		}
		return &execwirev1.WatchDirectoryResponse{}, nil
	}}, nil
}

// busyConnection delays sends until the test releases them.
type busyConnection struct {
	call.Connection
	tasks sync.WaitGroup
	free  chan struct{}
}

func (c *busyConnection) Spawn(f func()) { c.tasks.Go(f) }

func (c *busyConnection) Send(appendTo func([]byte) []byte) error {
	<-c.free
	appendTo(nil)
	return nil
}

func TestWatch_KeepsItsIDUntilItsEndIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := &busyConnection{free: make(chan struct{})}
		s := New(lostWatches{}, connection, call.NewWatches(connection, 2), nil)
		one, two := &fsWatchParams{Path: param.Path{Native: "/d"}}, &fsWatchMissingParams{Missing: []param.Path{{Native: "/f"}}}
		one.RawWatchID, two.RawWatchID = json.RawMessage("1"), json.RawMessage("2")
		if err := cmp.Or(one.Check(), two.Check()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []Call{one, two} {
			result, failed := s.Run(t.Context(), c)
			if failed != nil {
				t.Fatal(failed)
			}
			result.(call.SendObserver).Sent()
		}
		synctest.Wait()
		for _, c := range []Call{one, two} {
			if _, failed := s.Run(t.Context(), c); failed == nil {
				t.Errorf("%T: the id is free before the end was sent", c)
			}
		}
		close(connection.free)
		connection.tasks.Wait()
		for _, c := range []Call{one, two} {
			if _, failed := s.Run(t.Context(), c); failed != nil {
				t.Errorf("%T: %v", c, failed)
			}
		}
	})
}
