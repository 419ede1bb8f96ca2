package files

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The error of a watch above the limit names the setting and the retry delay.
func TestWatchLimit_NamesTheSettingAndWhenToRetry(t *testing.T) {
	const setting = "watches_per_connection"
	w := &watches{limit: 1}
	_, _ = w.reserve("1")
	_, refused := w.reserve("2")
	data := refused.Data.(map[string]any)
	if data["setting"] != setting || !strings.Contains(refused.Message, setting) || data["retryAfterMs"] != int64(1000) {
		t.Errorf("%+v", refused)
	}
}

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
		s := New(lostWatches{}, connection, 2, nil)
		for _, c := range []Call{&fsWatchParams{id: "1", Path: param.Path{Native: "/d"}}, &fsWatchMissingParams{id: "2", Missing: []param.Path{{Native: "/f"}}}} {
			result, failed := s.Run(t.Context(), c)
			if failed != nil {
				t.Fatal(failed)
			}
			result.(call.SendObserver).Sent()
		}
		synctest.Wait()
		for _, id := range []watchID{"1", "2"} {
			if s.watches.find(id) == nil {
				t.Errorf("watch %s is removed before its end was sent", id)
			}
		}
		close(connection.free)
		connection.tasks.Wait()
		for _, id := range []watchID{"1", "2"} {
			if s.watches.find(id) != nil {
				t.Errorf("watch %s is not removed", id)
			}
		}
	})
}

// FuzzWatchID: an accepted id encodes to JSON that is accepted as the same id.
func FuzzWatchID(f *testing.F) {
	for _, seed := range []string{"1", `"a"`, `"\u0061"`, "-1", "1.5", "null", `"\ud800"`, " 7 "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		id, failed := parseWatchID(json.RawMessage(raw))
		if failed != nil {
			return
		}
		again, failed := parseWatchID(json.RawMessage(id))
		if failed != nil && len(id) <= maxWatchIDBytes || failed == nil && again != id {
			t.Error(errors.New("the id "+string(id)), again, failed)
		}
	})
}
