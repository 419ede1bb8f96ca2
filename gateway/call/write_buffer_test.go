package call

import (
	"bytes"
	"encoding/base64"
	"testing"
)

// Clients that do not read keep few large buffers; the others get their files
// whole, in smaller writes.
func TestFewFilesAreGatheredInLargeBuffers(t *testing.T) {
	var back []func()
	for range maxWriteBuffers {
		buffer, giveBack := getWriteBuffer()
		if cap(buffer) != writeBufferBytes || len(buffer) != 0 {
			t.Errorf("a buffer has %d bytes of %d", len(buffer), cap(buffer))
		}
		back = append(back, giveBack)
	}
	whole := bytes.Repeat([]byte("0123456789"), 100_000)
	left := whole
	got := &largestWrite{}
	err := StreamBase64(got, `{"data":`, func() ([]byte, error) {
		piece := left[:min(1000, len(left))]
		left = left[len(piece):]
		return piece, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"data":"` + base64.StdEncoding.EncodeToString(whole) + `"}`; got.all.String() != want {
		t.Errorf("%d bytes were written, want %d", got.all.Len(), len(want))
	}
	if got.largest > smallWriteBufferBytes {
		t.Errorf("%d bytes were written at once, at most %d may be", got.largest, smallWriteBufferBytes)
	}
	for _, giveBack := range back {
		giveBack()
	}
	buffer, giveBack := getWriteBuffer()
	defer giveBack()
	if cap(buffer) != writeBufferBytes {
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
