package call

import (
	"bytes"
	"encoding/base64"
	"testing"
)

// When all large buffers are in use, files are written whole through small ones.
func TestWriteBuffers_AllInUse_SmallBufferIsUsed(t *testing.T) {
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
		chunk := left[:min(1000, len(left))]
		left = left[len(chunk):]
		return chunk, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"data":"` + base64.StdEncoding.EncodeToString(whole) + `"}`; got.all.String() != want {
		t.Errorf("%d bytes were written, want %d", got.all.Len(), len(want))
	}
	if got.largest > smallWriteBufferBytes {
		t.Errorf("%d bytes were written at once, want at most %d", got.largest, smallWriteBufferBytes)
	}
	for _, giveBack := range back {
		giveBack()
	}
	buffer, giveBack := getWriteBuffer()
	defer giveBack()
	if cap(buffer) != writeBufferBytes {
		t.Errorf("a returned buffer is not reused: got %d bytes", cap(buffer))
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
