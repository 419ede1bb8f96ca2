package presence_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/internal/testrace"
	"github.com/execwire/execwire/relay/rendezvous"
	"github.com/execwire/execwire/relay/rendezvous/presence"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

var errHangs = errors.New("the test hangs")

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Minute, errHangs)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, o presence.Options) *presence.NATS {
	t.Helper()
	n, err := presence.Open(soon(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// each runs test with every kind of presence.
func each(t *testing.T, test func(*testing.T, rendezvous.Presence)) {
	t.Run("memory", func(t *testing.T) { test(t, rendezvous.NewMemory()) })
	t.Run("NATS in memory", func(t *testing.T) { test(t, open(t, presence.Options{})) })
	t.Run("NATS in files", func(t *testing.T) { test(t, open(t, presence.Options{Directory: t.TempDir()})) })
}

func record(executor string, epoch uint64) rendezvous.Record {
	return rendezvous.Record{Executor: executor, Epoch: epoch, Name: "a name", Labels: map[string]string{"os": "linux"},
		LastSeen: time.Unix(1_800_000_000, 5).UTC()}
}

func TestPut_ComparesRevision(t *testing.T) {
	each(t, func(t *testing.T, p rendezvous.Presence) {
		ctx := soon(t)
		if r, revision, err := p.Get(ctx, "a"); err != nil || revision != 0 || !reflect.DeepEqual(r, rendezvous.Record{}) {
			t.Fatalf("what is not there is %+v at %d, %v", r, revision, err)
		}
		first, err := p.Put(ctx, record("a", 1), 0)
		if err != nil || first == 0 {
			t.Fatal(first, err)
		}
		if _, err := p.Put(ctx, record("a", 9), 0); !errors.Is(err, rendezvous.ErrChanged) {
			t.Errorf("putting again as new gave %v", err)
		}
		second, err := p.Put(ctx, record("a", 2), first)
		if err != nil || second <= first {
			t.Fatal(second, err)
		}
		if _, err := p.Put(ctx, record("a", 9), first); !errors.Is(err, rendezvous.ErrChanged) {
			t.Errorf("putting over an old revision gave %v", err)
		}
		if err := p.Delete(ctx, "a", first); !errors.Is(err, rendezvous.ErrChanged) {
			t.Errorf("deleting an old revision gave %v", err)
		}
		if r, revision, err := p.Get(ctx, "a"); err != nil || revision != second || !reflect.DeepEqual(r, record("a", 2)) {
			t.Errorf("it is %+v at %d, %v", r, revision, err)
		}
		if _, err := p.Put(ctx, record("B", 7), 0); err != nil {
			t.Fatal(err)
		}
		if all := records(t, p); !reflect.DeepEqual(all, map[string]rendezvous.Record{"B": record("B", 7), "a": record("a", 2)}) {
			t.Errorf("the records are %+v", all)
		}
		if err := p.Delete(ctx, "a", second); err != nil {
			t.Fatal(err)
		}
		if r, revision, err := p.Get(ctx, "a"); err != nil || revision != 0 {
			t.Errorf("what was deleted is %+v at %d, %v", r, revision, err)
		}
		if all := records(t, p); len(all) != 1 {
			t.Errorf("the records are %+v", all)
		}
		if _, err := p.Put(ctx, record("a", 1), 0); err != nil {
			t.Errorf("what was deleted cannot be made again: %v", err)
		}
	})
}

// The end of ctx also ends the subscription: a watch that sees both must return
// the cause of ctx. The pause lets the library end the subscription.
func TestWatch_ContextEnds_ReturnsItsCause(t *testing.T) {
	each(t, func(t *testing.T, p rendezvous.Presence) {
		over := errors.New("over")
		for range 40 {
			ctx, cancel := context.WithCancelCause(soon(t))
			err := p.Watch(ctx, func(rendezvous.Change) {}, func() { cancel(over); time.Sleep(2 * time.Millisecond) })
			if !errors.Is(err, over) {
				t.Fatalf("the watch ended with %v, want the cause of its context", err)
			}
		}
	})
}

// records returns the records that a watch begins with.
func records(t *testing.T, p rendezvous.Presence) map[string]rendezvous.Record {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	all := map[string]rendezvous.Record{}
	err := p.Watch(ctx, func(c rendezvous.Change) {
		if !c.Deleted {
			all[c.Record.Executor] = c.Record
		}
	}, cancel)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	return all
}

// A watch reports changes in the order of their revisions, and the last change of
// each record, including deletions.
func TestWatch_ReportsLatestChanges(t *testing.T) {
	each(t, func(t *testing.T, p rendezvous.Presence) {
		ctx, cancel := context.WithCancel(soon(t))
		changes, current := make(chan rendezvous.Change, 10), make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			_ = p.Watch(ctx, func(c rendezvous.Change) { changes <- c }, sync.OnceFunc(func() { close(current) }))
		})
		defer watching.Wait()
		defer cancel()
		<-current
		first, err := p.Put(ctx, record("a", 1), 0)
		if err != nil {
			t.Fatal(err)
		}
		second, err := p.Put(ctx, record("a", 2), first)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Delete(ctx, "a", second); err != nil {
			t.Fatal(err)
		}
		known := map[uint64]rendezvous.Record{first: record("a", 1), second: record("a", 2)}
		for last := uint64(0); ; {
			got := <-changes
			if got.Revision <= last || got.Record.Executor != "a" {
				t.Errorf("%+v came after revision %d", got, last)
			}
			if last = got.Revision; got.Deleted {
				break
			}
			if !reflect.DeepEqual(got.Record, known[got.Revision]) {
				t.Errorf("%+v came, want %+v", got, known[got.Revision])
			}
		}
	})
}

// Concurrent changes of one record are not lost.
func TestPut_Concurrent_LosesNothing(t *testing.T) {
	each(t, func(t *testing.T, p rendezvous.Presence) {
		ctx := soon(t)
		const writers, changes = 4, 10
		var writing sync.WaitGroup
		for range writers {
			writing.Go(func() {
				for done := 0; done < changes; {
					r, revision, err := p.Get(ctx, "a")
					r.Executor = "a"
					r.Epoch++
					if err == nil {
						_, err = p.Put(ctx, r, revision)
					}
					switch {
					case err == nil:
						done++
					case !errors.Is(err, rendezvous.ErrChanged):
						t.Error(err)
						return
					}
				}
			})
		}
		writing.Wait()
		if r, _, err := p.Get(ctx, "a"); err != nil || r.Epoch != writers*changes {
			t.Errorf("the epoch is %d, %v, want %d", r.Epoch, err, writers*changes)
		}
	})
}

func TestOpen_WithDirectory_RestoresRecords(t *testing.T) {
	o := presence.Options{Directory: t.TempDir()}
	first := open(t, o)
	revision, err := first.Put(soon(t), record("a", 3), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, o)
	if r, at, err := second.Get(soon(t), "a"); err != nil || at != revision || !reflect.DeepEqual(r, record("a", 3)) {
		t.Errorf("it is %+v at %d, %v", r, at, err)
	}
}

func TestCluster_SharesRecords(t *testing.T) {
	testrace.Slow(t)
	var addresses [3]string
	for i := range addresses {
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", testport.Reserve(t))
	}
	nodes := make([]*presence.NATS, len(addresses))
	var opening sync.WaitGroup
	for i := range addresses {
		o := presence.Options{Node: fmt.Sprintf("node%d", i), Cluster: &presence.Cluster{Listen: addresses[i], Secret: "secret"}}
		for j, other := range addresses {
			if j != i {
				o.Cluster.Routes = append(o.Cluster.Routes, other)
			}
		}
		opening.Go(func() {
			n, err := presence.Open(soon(t), o)
			if err != nil {
				t.Error(err)
				return
			}
			nodes[i] = n
			t.Cleanup(func() { _ = n.Close() })
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	revision, err := nodes[0].Put(soon(t), record("a", 1), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[1].Put(soon(t), record("a", 9), 0); !errors.Is(err, rendezvous.ErrChanged) {
		t.Errorf("another node put it, too: %v", err)
	}
	if _, err := nodes[1].Put(soon(t), record("a", 2), revision); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		for r, _, err := n.Get(soon(t), "a"); r.Epoch != 2; r, _, err = n.Get(soon(t), "a") {
			if err != nil {
				t.Fatalf("node %d: %v", i, err)
			}
			time.Sleep(10 * time.Millisecond) // a replica may lag behind
		}
	}
}

func TestOpen_InvalidOptions_Fails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]presence.Options{
		"no port":    {Cluster: &presence.Cluster{Listen: "127.0.0.1"}},
		"port 0":     {Cluster: &presence.Cluster{Listen: "127.0.0.1:0"}},
		"no host":    {Cluster: &presence.Cluster{Listen: ":7000"}},
		"bad route":  {Cluster: &presence.Cluster{Listen: "127.0.0.1:7000", Routes: []string{"there"}}},
		"not a path": {Directory: filepath.Join(file, "directory")},
	} {
		if n, err := presence.Open(soon(t), o); err == nil {
			t.Errorf("%s: it was opened", name)
			_ = n.Close()
		}
	}
}

// A second server with the same files would corrupt them.
func TestOpen_DirectoryInUse_Fails(t *testing.T) {
	o := presence.Options{Directory: t.TempDir()}
	first := open(t, o)
	n, err := presence.Open(soon(t), o)
	if err == nil || !strings.Contains(err.Error(), "another hub uses the directory "+o.Directory) {
		t.Errorf("a second one opened it: %v", err)
	}
	if n != nil {
		_ = n.Close()
	}
	if _, err := first.Put(soon(t), record("a", 1), 0); err != nil {
		t.Errorf("the first one keeps nothing any more: %v", err)
	}
}

// A process of the same user that may only read, and holds locks on every file
// that it can open, does not keep a hub from starting.
func TestOpen_DirectoryLockedByReader_Succeeds(t *testing.T) {
	dir := t.TempDir()
	first, err := presence.Open(soon(t), presence.Options{Directory: dir})
	if err == nil {
		err = first.Close() // the files exist now
	}
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o400 == 0 { // root could open it anyway
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = file.Close() })
		return unix.Flock(int(file.Fd()), unix.LOCK_EX)
	})
	if err != nil {
		t.Fatal(err)
	}
	open(t, presence.Options{Directory: dir})
}
