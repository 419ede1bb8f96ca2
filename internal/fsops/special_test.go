package fsops_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// Opening a FIFO would wake the process at its other end.
func TestFIFO_IsNotOpened(t *testing.T) {
	dir := build(t, "fifo |", "l -> fifo", "f = content", "d/", "d/fifo = content")
	fifo := dir + "/fifo"
	reader, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(reader) }()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(watch) }()
	if _, err := unix.InotifyAddWatch(watch, fifo, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir + "/l"} {
		_, _, err = fsops.ReadFile(t.Context(), path, 1<<20)
		wantError(t, "reading", err, fsops.NotRegular, 0)
		wantError(t, "writing", fsops.WriteFile(t.Context(), path, []byte("x")), fsops.NotRegular, 0)
		_, err = fsops.Copy(t.Context(), dir+"/f", path, false)
		wantError(t, "copying to it", err, fsops.NotRegular, 0)
	}
	_, err = fsops.Copy(t.Context(), fifo, dir+"/copy", false)
	wantError(t, "copying it", err, fsops.NotRegular, 0)
	_, err = fsops.Copy(t.Context(), dir+"/d", dir, true)
	wantError(t, "copying a tree over it", err, fsops.NotRegular, 0)
	events := make([]byte, 4096)
	if n, err := unix.Read(watch, events); err != unix.EAGAIN {
		t.Errorf("the FIFO was opened: %d bytes of events, %v", n, err)
	}
}
