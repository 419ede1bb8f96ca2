package gateway

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Clients that do not read keep few large buffers; the others get their files
// whole, in smaller writes.
func TestFewFilesAreGatheredInLargeBuffers(t *testing.T) {
	var back []func()
	for range maxGathering {
		buffer, giveBack := gather()
		if cap(buffer) != gatheredBytes || len(buffer) != 0 {
			t.Errorf("a buffer has %d bytes of %d", len(buffer), cap(buffer))
		}
		back = append(back, giveBack)
	}
	whole := bytes.Repeat([]byte("0123456789"), 100_000)
	left := whole[1000:]
	f, _ := downloadOf(t, whole[:1000], func() (*execwirev1.DownloadFileResponse, error) {
		if len(left) == 0 {
			return nil, io.EOF
		}
		piece := left[:min(1000, len(left))]
		left = left[len(piece):]
		return content(piece), nil
	})
	got := &largestWrite{}
	if err := f.streamTo(got); err != nil {
		t.Fatal(err)
	}
	if want := (&wholeFile{data: whole}).appendTo(nil); !bytes.Equal(got.all.Bytes(), want) {
		t.Errorf("%d bytes were written, want %d", got.all.Len(), len(want))
	}
	if got.largest > gatheredLess {
		t.Errorf("%d bytes were written at once, at most %d may be", got.largest, gatheredLess)
	}
	for _, giveBack := range back {
		giveBack()
	}
	buffer, giveBack := gather()
	defer giveBack()
	if cap(buffer) != gatheredBytes {
		t.Errorf("a buffer that was given back is not there again: %d bytes", cap(buffer))
	}
}

type largestWrite struct {
	all     bytes.Buffer
	largest int
}

func (w *largestWrite) Write(p []byte) (int, error) {
	w.largest = max(w.largest, len(p))
	return w.all.Write(p)
}

// A large file leaves little garbage on its way: what the collector lets pile up
// is memory, too.
func TestALargeFileIsStreamedThroughFewBuffers(t *testing.T) {
	const size = 64 << 20
	core := newCore(t, withSmallFiles)
	path := t.TempDir() + "/f"
	do(t, writeMany(path, size))
	p := &fsReadFileParams{Path: path}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result, failed := p.run(t.Context(), &request{connection: &connection{fileSystem: execwirev1.NewFileSystemServiceClient(core.channel)}})
	if failed != nil {
		t.Fatal(failed)
	}
	if err := result.(streamable).streamTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/4 {
		t.Errorf("%d bytes were allocated for a file of %d", allocated, size)
	}
}
