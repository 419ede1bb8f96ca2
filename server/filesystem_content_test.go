package server_test

import (
	"io"
	"sync/atomic"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// OnContent is called after each kind of call that leaves much garbage, and not after
// small ones.
func TestOnContent_LargeContent_IsCalled(t *testing.T) {
	var called atomic.Int64
	f := newFixture(t, func(s *settings) { s.onContent = func() { called.Add(1) } })
	path := t.TempDir() + "/f"
	ctx, block := f.ctx, func(id string) *execwirev1.ReadBlockRequest {
		return &execwirev1.ReadBlockRequest{HandleId: id, Length: 1 << 20}
	}
	upload := func(data []byte, mode execwirev1.UploadMode) error {
		stream, err := f.files.UploadFile(ctx)
		if err != nil {
			return err
		}
		for _, m := range []*execwirev1.UploadFileRequest{
			replaceHead(path, func(h *execwirev1.UploadHead) { h.Mode = mode }),
			{Message: &execwirev1.UploadFileRequest_Data{Data: data}}, uploadEnd(nil),
		} {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		_, err = stream.CloseAndRecv()
		return err
	}
	calls := []struct {
		name string
		call func(data []byte) error
	}{
		{"WriteFile", func(data []byte) error {
			_, err := f.files.WriteFile(ctx, &execwirev1.WriteFileRequest{Path: path, Data: data})
			return err
		}},
		{"ReadFile", func([]byte) error {
			_, err := f.files.ReadFile(ctx, &execwirev1.ReadFileRequest{Path: path})
			return err
		}},
		{"ReadBlock", func([]byte) error {
			f.openFile("", "r", path, toRead)
			_, err := f.files.ReadBlock(ctx, block("r"))
			return err
		}},
		{"DownloadFile", func([]byte) error {
			stream, err := f.files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: path})
			for err == nil {
				_, err = stream.Recv()
			}
			if err == io.EOF {
				return nil
			}
			return err
		}},
		{"WriteBlock", func(data []byte) error {
			f.openFile("", "w", path, toReplace)
			_, err := f.files.WriteBlock(ctx, &execwirev1.WriteBlockRequest{HandleId: "w", Data: data})
			return err
		}},
		{"UploadFile in place", func(data []byte) error { return upload(data, execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE) }},
		{"UploadFile with replace", func(data []byte) error { return upload(data, execwirev1.UploadMode_UPLOAD_MODE_REPLACE) }},
	}
	for _, size := range []int{1000, 1 << 20} {
		for _, c := range calls {
			before := called.Load()
			if err := c.call(make([]byte, size)); err != nil {
				t.Fatalf("%s of %d bytes: %v", c.name, size, err)
			}
			if n := called.Load() - before; (n > 0) != (size == 1<<20) {
				t.Errorf("%s of %d bytes called OnContent %d times", c.name, size, n)
			}
		}
		for _, id := range []string{"r", "w"} {
			if _, err := f.files.CloseFile(ctx, &execwirev1.CloseFileRequest{HandleId: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
