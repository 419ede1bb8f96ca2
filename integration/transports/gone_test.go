package transports

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// pending is an operation that continues until it fails.
type pending struct {
	name string
	// do begins it, calls begun, and returns why it ended.
	do func(v *scenarioRun, begun func()) error
	// not lists where it is not possible.
	not []protocol
}

// nothing is a grace period after which a lost connection is final at once.
var nothing = time.Duration(0)

// pendingThings has every kind of operation that takes long.
var pendingThings = []pending{
	{"a run", func(v *scenarioRun, begun func()) error {
		_, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(harness.Program("sleep")), Grace: &nothing,
			OnStarted: func(*execwirev1.Process) { begun() }})
		return err
	}, nil},
	{"a process that is held", func(v *scenarioRun, begun func()) error {
		p, err := v.client.Start(v.ctx, client.StartOptions{Process: v.process(harness.Program("sleep")), Grace: &nothing})
		begun()
		if err != nil {
			return err
		}
		defer func() { _ = p.Close() }()
		for event, err := range p.Events(v.ctx) {
			failed, is := event.(*client.FailedEvent)
			_, again := p.Wait(v.ctx)
			if !is || !errors.Is(failed.Err, err) || again == nil || again.Error() != err.Error() {
				v.Errorf("the events end with %T and %v, and Wait with %v", event, err, again)
			}
			return err
		}
		return nil
	}, nil},
	{"a write to a process that does not read", func(v *scenarioRun, begun func()) error {
		p, err := v.client.Start(v.ctx, client.StartOptions{Process: v.process(harness.Program("never-read"), harness.WithStdin), Grace: &nothing})
		begun()
		if err != nil {
			return err
		}
		defer func() { _ = p.Close() }()
		for {
			if _, err := p.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}, nil},
}

// lookingThings has those that try for longer than the grace period.
var lookingThings = []pending{
	{"a subscriber", func(v *scenarioRun, begun func()) error {
		id, err := v.start(harness.Shell("echo begun; exec sleep 1000"))
		if err != nil {
			begun()
			return err
		}
		_, err = v.client.Follow(v.ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{
			OnEvent: func(*execwirev1.ProcessEvent) error { begun(); return nil }})
		return err
	}, overJSON},
	{"a wait", func(v *scenarioRun, begun func()) error {
		id, err := v.start(harness.Program("sleep"))
		begun()
		if err != nil {
			return err
		}
		_, err = v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})
		return err
	}, overJSON},
	{"a watch", func(v *scenarioRun, begun func()) error {
		return v.client.Watch(v.ctx, v.dir, client.WatchOptions{}, func(client.WatchEvent) error { begun(); return nil })
	}, overJSON},
	{"an upload", func(v *scenarioRun, begun func()) error {
		_, err := v.client.Upload(v.ctx, v.path("file"), untilClosed{v.ctx, begun}, client.UploadOptions{})
		return err
	}, overJSON},
}

// untilClosed is a reader that returns some bytes from time to time.
type untilClosed struct {
	ctx   context.Context
	begun func()
}

func (r untilClosed) Read(p []byte) (int, error) {
	r.begun()
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	time.Sleep(5 * time.Millisecond)
	return min(len(p), 1000), nil
}

// laterThings has calls of every kind after the end.
var laterThings = []pending{
	{"a run", func(v *scenarioRun, _ func()) error {
		_, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process([]string{"true"})})
		return err
	}, nil},
	{"a start", func(v *scenarioRun, _ func()) error {
		_, err := v.client.Start(v.ctx, client.StartOptions{Process: v.process([]string{"true"})})
		return err
	}, nil},
	{"a look", func(v *scenarioRun, _ func()) error {
		_, err := v.client.Stat(v.ctx, v.dir)
		return err
	}, nil},
	{"a listing", func(v *scenarioRun, _ func()) error {
		_, err := v.client.ReadDir(v.ctx, v.dir)
		return err
	}, nil},
	{"a walk", func(v *scenarioRun, _ func()) error {
		return v.client.Walk(v.ctx, v.dir, client.WalkOptions{}, func(client.WalkEntry) error { return nil })
	}, nil},
	{"an upload", func(v *scenarioRun, _ func()) error {
		return v.client.WriteFile(v.ctx, v.path("file"), []byte("text"))
	}, nil},
	{"a description", func(v *scenarioRun, _ func()) error {
		_, err := v.client.Describe(v.ctx)
		return err
	}, nil},
}

// begin starts operations concurrently. Once all have begun, it returns a channel of their
// errors.
func (v *scenarioRun) begin(things []pending) func() map[string]error {
	v.Helper()
	var beginning, going sync.WaitGroup
	var mu sync.Mutex
	ended := map[string]error{}
	for i := range things {
		if slices.Contains(things[i].not, v.endpoint.protocol) {
			continue
		}
		beginning.Add(1)
		inner := *v
		inner.dir = harness.ShortDir(v)
		begun := sync.OnceFunc(beginning.Done)
		going.Go(func() {
			err := things[i].do(&inner, begun)
			begun()
			mu.Lock()
			defer mu.Unlock()
			ended[things[i].name] = err
		})
	}
	beginning.Wait()
	return func() map[string]error {
		going.Wait()
		return ended
	}
}

// TestTransports_ClientClosed checks that pending operations fail at once with the reason when
// the client is closed, and so do later calls.
func TestTransports_ClientClosed(t *testing.T) {
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			if e.distant {
				harness.Slow(t)
			}
			harness.Waits(t)
			v := newRun(t, &e, e.open(t))
			ended := v.begin(append(pendingThings, lookingThings...))
			if err := v.client.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			for name, err := range ended() {
				if !errors.Is(err, client.ErrClosed) {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			for _, thing := range laterThings {
				if err := thing.do(v, nil); !errors.Is(err, client.ErrClosed) {
					t.Errorf("%s ended with %v after that", thing.name, err)
				}
			}
		})
	}
}

// TestTransports_ConnectionLost checks that operations bound to a connection fail without it,
// and that others end with their context.
func TestTransports_ConnectionLost(t *testing.T) {
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			if e.distant {
				harness.Slow(t)
			}
			harness.Waits(t)
			site := e.open(t)
			if site.network == "" || e.lasting {
				return // it has no connection, or tolerates its loss for a while
			}
			v := &scenarioRun{TB: t, ctx: harness.Context(t), endpoint: &e, site: site, dir: harness.ShortDir(t)}
			var wire *harness.Proxy
			v.client, wire = site.dialThrough(t)
			looking, stop := context.WithCancelCause(v.ctx)
			defer stop(nil)
			longer := *v
			longer.ctx = looking
			ended, later := v.begin(pendingThings), longer.begin(lookingThings)
			wire.Close()
			for name, err := range ended() {
				var lost *client.LostError
				if !errors.As(err, &lost) || !errors.Is(err, client.ErrLost) || !lost.Started || lost.Exit != nil || !strings.HasPrefix(lost.ProcessID, v.Name()) {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			stop(errEnough)
			for name, err := range later() {
				var typed *client.Error
				if name != "a watch" && !errors.Is(err, errEnough) || name == "a watch" && !errors.As(err, &typed) && !errors.Is(err, errEnough) {
					t.Errorf("%s ended with %v", name, err)
				}
			}
			for _, thing := range laterThings {
				if thing.name == "a walk" {
					v.expectLost(thing.name, thing.do(v, nil))
				}
			}
		})
	}
}
