package fileworker_test

import (
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/server/fileworker"
)

// write is what the test worker does with a descriptor.
func write(fd int) {
	_, _ = unix.Write(fd, []byte("lent"))
	_ = unix.Close(fd)
}

// A worker gets one descriptor, which is released after the worker has ended.
func TestShareDescriptor_Concurrent_SharesOnce(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	set := f.newSet()
	lease := f.use(set, "key")
	pid := f.answer(lease, "pid")
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	taken, given := 0, 0
	take := func() (int, func(), error) {
		taken++
		return int(writing.Fd()), func() {
			if given++; !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
				t.Error("the descriptor is released before the worker has ended")
			}
			_ = writing.Close()
		}, nil
	}
	var lending sync.WaitGroup
	for range 10 {
		lending.Go(func() {
			if err := lease.ShareDescriptor(f.ctx, take); err != nil {
				t.Error(err)
			}
		})
	}
	lending.Wait()
	set.Close()
	f.Close()
	if content, err := io.ReadAll(reading); err != nil || string(content) != "lent" || taken != 1 || given != 1 {
		t.Errorf("%q, %v; taken %d times and released %d times", content, err, taken, given)
	}
	if err := lease.ShareDescriptor(f.ctx, take); err == nil || taken != 1 {
		t.Errorf("a worker that has ended receives a descriptor: %v", err)
	}
}

func TestShareDescriptor_TakeFails_CanBeRepeated(t *testing.T) {
	f := newFixture(t, fileworker.Options{PerPrincipal: 1, Total: 1, Idle: time.Minute})
	lease := f.use(f.newSet(), "key")
	for range 2 {
		if err := lease.ShareDescriptor(f.ctx, func() (int, func(), error) { return 0, nil, unix.EMFILE }); !errors.Is(err, unix.EMFILE) {
			t.Errorf("the error is %v", err)
		}
	}
}
