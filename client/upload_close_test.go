package client

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A reader that does not return delays Close no longer than the time to drop an upload.
func TestClose_DoesNotWaitForReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := newUploading(t, newFakeUploads())
		c := NewOwning(plain.channel.ClientConnInterface, closerFunc(func() error { return nil }))
		reader, writer := io.Pipe()
		ended := make(chan error)
		go func() {
			_, err := c.Upload(t.Context(), "/x", reader, UploadOptions{})
			ended <- err
		}()
		synctest.Wait()
		before := time.Now()
		_ = c.Close() // its closer returns nil
		if took := time.Since(before); took != finishTimeout {
			t.Errorf("it took %v", took)
		}
		_ = writer.Close() // never fails
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Upload: %v", err)
		}
	})
}
