package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy that a signal ends leaves what was there, and the same command goes on
// with it.
func TestInterruptedCopiesAreGoneOnWith(t *testing.T) {
	const size, before, after = 12 << 20, 6 << 20, 11 << 20
	server := serve(t)
	src := fileTree(t, map[string]string{"big": string(randomBytes(size))})
	for _, end := range ends {
		dir := fileTree(t, map[string]string{"big": "old"})
		wire := newProxy(t, "unix", server.address(unixDoor))
		left := int64(before)
		wire.cutAfter(func() int64 { defer func() { left = 0 }(); return left })
		args := []string{"cp", "--server", wire.url(), end[0] + src + "/big", end[1] + dir}
		copying := newCommand(args...)
		copying.launch(t)
		eventually(t, "the copy has lost its connection", func() bool { return wire.cutCount() > 1 })
		copying.send(t, unix.SIGINT)
		if code := copying.await(t); code != 130 || !strings.Contains(copying.errors.String(), "interrupted") {
			t.Errorf("%q: exit code %d, %q", args, code, copying.errors.String())
		}
		if got, err := os.ReadFile(dir + "/big"); string(got) != "old" {
			t.Errorf("%q: there are %d bytes, %v", args, len(got), err)
		}
		// A whole file would be cut.
		cuts := wire.cutCount()
		wire.cutAfter(func() int64 { return after })
		if got := run(t, nil, args...); got != (result{}) || wire.cutCount() != cuts {
			t.Errorf("%q: %+v, with %d cuts after %d", args, got, wire.cutCount(), cuts)
		}
		expectSameTree(t, "gone on with", dir, src, false)
	}
}

// What a signal ends counts no more towards the uploads that there may be, and
// nothing is left of it.
func TestInterruptedPutsAreDropped(t *testing.T) {
	server := serve(t, "EXECWIRE_UPLOADS_PER_PRINCIPAL=1")
	for _, d := range wires {
		dir := t.TempDir()
		for range 3 {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			put := newCommand(server.remotely(d, "put", dir+"/file")...)
			put.Stdin = reader
			put.launch(t)
			_ = reader.Close()
			if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			put.send(t, unix.SIGTERM)
			if code := put.await(t); code != 130 {
				t.Errorf("put through %s: exit code %d, %q", d, code, put.errors.String())
			}
			_ = writer.Close()
		}
		content := randomBytes(1 << 20)
		if got := run(t, bytes.NewReader(content), server.remotely(d, "put", dir+"/file")...); got != (result{}) {
			t.Errorf("put through %s: %+v", d, got)
		}
		if names, err := filepath.Glob(dir + "/.*"); len(names) > 0 || err != nil {
			t.Errorf("left behind: %q, %v", names, err)
		}
	}
}
