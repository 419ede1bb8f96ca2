package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// A copy that is ended by a signal leaves the previous file, and the same command resumes it.
func TestCopy_Interrupted_Continues(t *testing.T) {
	const size, before, after = 12 << 20, 6 << 20, 11 << 20
	server := harness.Serve(t)
	src := harness.FileTree(t, map[string]string{"big": string(harness.RandomBytes(size))})
	for _, end := range ends {
		dir := harness.FileTree(t, map[string]string{"big": "old"})
		wire := harness.NewProxy(t, "unix", server.Address(harness.UnixTransport))
		left := int64(before)
		wire.CutAfter(func() int64 { defer func() { left = 0 }(); return left })
		args := []string{"cp", "--server", wire.URL(), end[0] + src + "/big", end[1] + dir}
		copying := harness.NewCommand(args...)
		copying.Launch(t)
		harness.Eventually(t, "the copy has lost its connection", func() bool { return wire.CutCount() > 1 })
		copying.Send(t, unix.SIGINT)
		if code := copying.Await(t); code != 130 || !strings.Contains(copying.Errors.String(), "interrupted") {
			t.Errorf("%q: exit code %d, %q", args, code, copying.Errors.String())
		}
		if got, err := os.ReadFile(dir + "/big"); string(got) != "old" {
			t.Errorf("%q: there are %d bytes, %v", args, len(got), err)
		}
		// A whole file would be cut.
		cuts := wire.CutCount()
		wire.CutAfter(func() int64 { return after })
		if got := harness.Run(t, nil, args...); got != (harness.Result{}) || wire.CutCount() != cuts {
			t.Errorf("%q: %+v, with %d cuts after %d", args, got, wire.CutCount(), cuts)
		}
		expectSameTree(t, "gone on with", dir, src, false)
	}
}

// After a signal the upload no longer counts towards the limit, and leaves no files.
func TestPut_Interrupted_LeavesNothing(t *testing.T) {
	server := harness.Serve(t, "EXECWIRE_UPLOADS_PER_PRINCIPAL=1")
	for _, d := range harness.NetworkTransports {
		dir := t.TempDir()
		for range 3 {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			put := harness.NewCommand(server.Remotely(d, "put", dir+"/file")...)
			put.Stdin = reader
			put.Launch(t)
			_ = reader.Close()
			if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			put.Send(t, unix.SIGTERM)
			if code := put.Await(t); code != 130 {
				t.Errorf("put through %s: exit code %d, %q", d, code, put.Errors.String())
			}
			_ = writer.Close()
		}
		content := harness.RandomBytes(1 << 20)
		if got := harness.Run(t, bytes.NewReader(content), server.Remotely(d, "put", dir+"/file")...); got != (harness.Result{}) {
			t.Errorf("put through %s: %+v", d, got)
		}
		if names, err := filepath.Glob(dir + "/.*"); len(names) > 0 || err != nil {
			t.Errorf("left behind: %q, %v", names, err)
		}
	}
}
