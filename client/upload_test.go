package client

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newUploading(t testing.TB, files *fakeUploads) *Client {
	t.Helper()
	_, c := newFakeWith(t, func(s *grpc.Server) { execwirev1.RegisterFileSystemServiceServer(s, files) })
	return c
}

// contentOf returns n bytes without repetition.
func contentOf(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return content
}

// onlyReader cannot seek.
type onlyReader struct{ io.Reader }

// Wherever the stream is cut, a file of any size arrives unchanged, and received data
// is not sent again.
func TestUpload_ResumesAfterCut(t *testing.T) {
	content := contentOf(1 << 20)
	for name, from := range map[string]func() io.Reader{
		"seeking": func() io.Reader { return bytes.NewReader(content) },
		"keeping": func() io.Reader { return onlyReader{bytes.NewReader(content)} },
	} {
		t.Run(name, func(t *testing.T) {
			files := newFakeUploads()
			files.cuts = []int{0, 100_000, 100_001, 700_000}
			var progress int64
			got, err := newUploading(t, files).Upload(t.Context(), "/f", from(), UploadOptions{OnProgress: func(sent int64) { progress = sent }})
			if err != nil || got.Size != 1<<20 || !bytes.Equal(files.files["/f"], content) || progress != 1<<20 {
				t.Fatalf("got %d bytes, %v; progress %d", got.Size, err, progress)
			}
			if files.received != len(content) {
				t.Errorf("%d bytes were sent for %d", files.received, len(content))
			}
		})
	}
}

// Data lost by the server is sent again if the source can be read again.
func TestUpload_ServerLostData_StartsOver(t *testing.T) {
	content := contentOf(1 << 20)
	files := newFakeUploads()
	files.cuts, files.forgets = []int{500_000, 600_000}, true
	c := newUploading(t, files)
	if _, err := c.Upload(t.Context(), "/f", bytes.NewReader(content), UploadOptions{}); err != nil || !bytes.Equal(files.files["/f"], content) {
		t.Errorf("got %v", err)
	}
	files.cuts = []int{100}
	if err := c.WriteFile(t.Context(), "/small", content[:1000]); err != nil || !bytes.Equal(files.files["/small"], content[:1000]) {
		t.Errorf("a small file: %v", err)
	}
	if id := files.heads[len(files.heads)-1].GetUploadId(); id != "" {
		t.Errorf("a small file is kept as %q", id)
	}
}

// An upload that cannot go on is not tried again, whatever its last error was.
func TestUpload_ServerLostData_OnceReadIsOver(t *testing.T) {
	source, _ := newUploadSource(onlyReader{bytes.NewReader(contentOf(1000))})
	if _, err := source.next(); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	u := &upload{path: "/f", source: source, lastErr: &Error{Code: codes.Unavailable, Message: "lost"}}
	_, _, err := u.attempt(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "/f, which cannot be read from the start again") || errors.As(err, new(*Error)) {
		t.Errorf("%v", err)
	}
}

// An upload with an id resumes where another program stopped, and starts over if that
// had different content or is complete: its file may be gone.
func TestUpload_WithID_Resumes(t *testing.T) {
	content := contentOf(1 << 20)
	files := newFakeUploads()
	files.partial["mine"] = bytes.Clone(content[:600_000])
	files.partial["old"] = bytes.Clone(content[1000:500_000])
	files.completed = map[string]uint64{"done": 1 << 20}
	c := newUploading(t, files)
	for _, id := range []string{"mine", "old", "done", "new"} {
		files.received = 0
		_, err := c.Upload(t.Context(), "/"+id, bytes.NewReader(content), UploadOptions{ID: id})
		if err != nil || !bytes.Equal(files.files["/"+id], content) {
			t.Errorf("%s: %v", id, err)
		}
		if id == "mine" && files.received != len(content)-600_000 {
			t.Errorf("%d bytes were sent", files.received)
		}
	}
}

// The answer to an earlier upload with the same id is not returned for one that the
// server has not received: the permissions may differ, or the file may be gone.
func TestUpload_EarlierAnswer_IsNotReturned(t *testing.T) {
	content := contentOf(1 << 20)
	files := newFakeUploads()
	files.completed = map[string]uint64{"again": 1 << 20}
	files.unseen = 1
	mode := uint32(0o444)
	_, err := newUploading(t, files).Upload(t.Context(), "/f", bytes.NewReader(content), UploadOptions{ID: "again", Permissions: &mode})
	if err != nil || !bytes.Equal(files.files["/f"], content) {
		t.Errorf("%d bytes are there: %v", len(files.files["/f"]), err)
	}
	if last := files.heads[len(files.heads)-1]; files.unseen != 0 || last.Permissions == nil || last.GetPermissions() != mode {
		t.Errorf("the last upload was %v", last)
	}
}

// When only the answer is lost, the upload succeeds, also if it must not replace a file:
// its own is there by then.
func TestUpload_LostAnswer_Succeeds(t *testing.T) {
	for _, size := range []int{0, 1000, 1 << 20} {
		for name, options := range map[string]UploadOptions{"plain": {}, "if missing": {IfMissing: true}} {
			content := contentOf(size)
			files := newFakeUploads()
			files.lateCuts = 1
			uploaded, err := newUploading(t, files).Upload(t.Context(), "/f", bytes.NewReader(content), options)
			if err != nil || uploaded.Size != int64(size) || !bytes.Equal(files.files["/f"], content) || files.lateCuts != 0 {
				t.Errorf("%s, %d bytes: %d bytes are there, %v", name, size, uploaded.Size, err)
			}
		}
	}
}

func TestUpload_ReaderError_EndsUpload(t *testing.T) {
	files := newFakeUploads()
	broken := errors.New("broken")
	_, err := newUploading(t, files).Upload(t.Context(), "/f", io.MultiReader(bytes.NewReader(contentOf(100_000)), iotest.ErrReader(broken)), UploadOptions{})
	if !errors.Is(err, broken) || !errors.As(err, new(*ReadError)) {
		t.Errorf("got %v", err)
	}
	if _, ok := files.files["/f"]; ok {
		t.Error("a part of it was put in the place of the file")
	}
}

// After any rewind, a source returns its content.
func TestUploadSource_ReturnsContent(t *testing.T) {
	content := contentOf(4 * pieceBytes)
	rapid.Check(t, func(t *rapid.T) {
		// Content of whole pieces ends with an empty piece.
		size := rapid.OneOf(rapid.IntRange(0, len(content)), rapid.Map(rapid.IntRange(0, 4), func(pieces int) int {
			return pieces * pieceBytes
		})).Draw(t, "size")
		var from io.Reader = bytes.NewReader(content[:size])
		seeking := rapid.Bool().Draw(t, "seeking")
		if !seeking {
			from = onlyReader{from}
		}
		source, _ := newUploadSource(from)
		source.buffering = !seeking
		forgotten, position, most := int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				piece, err := source.next()
				if !bytes.Equal(piece, content[position:position+int64(len(piece))]) || err == nil && len(piece) == 0 {
					t.Fatalf("at %d there are %d other bytes, %v", position, len(piece), err)
				}
				position += int64(len(piece))
				if err != nil && position != int64(size) {
					t.Fatalf("it ends at %d of %d with %v", position, size, err)
				}
				most = max(most, position)
			case 1:
				position = rapid.Int64Range(forgotten, most).Draw(t, "to")
				if !source.rewind(position) {
					t.Fatalf("cannot go back to %d", position)
				}
			case 2:
				forgotten = rapid.Int64Range(forgotten, position).Draw(t, "forget")
				source.forget(forgotten)
				if kept := source.kept(); kept > most-forgotten+pieceBytes {
					t.Fatalf("%d bytes are kept of %d", kept, most-forgotten)
				}
			}
		}
	})
}
