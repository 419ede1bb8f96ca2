package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

// capacity is that of the pipe of a process's standard output.
func capacity(t *testing.T, p *Process) int {
	t.Helper()
	var size int
	var err error
	if control := p.streams[0].conn.Control(func(fd uintptr) {
		size, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0)
	}); control != nil || err != nil {
		t.Fatal(control, err)
	}
	return size
}

func TestStream_OnlyFloodEnlargesPipe(t *testing.T) {
	quiet := start(t, piped(shell("echo quiet; read line")))
	readLog(t, quiet).until("quiet\n")
	if size := capacity(t, quiet); size >= largePipeBytes {
		t.Errorf("the pipe of a quiet process holds %d bytes", size)
	}
	flood := start(t, shell("exec cat /dev/zero"))
	poll(t, "a large pipe", func() bool { return capacity(t, flood) == largePipeBytes })
}
