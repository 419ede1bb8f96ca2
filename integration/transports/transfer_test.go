package transports

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// transferScenarios are about uploads and downloads.
var transferScenarios = []scenario{
	{name: "a big file there and back", do: bigFile, except: otherwiseWithJSON("a big file there and back, in place")},
	{name: "a big file there and back, in place", do: bigFileInPlace},
	{name: "a part of a file", do: partOfFile},
	{name: "conditional writes", do: conditionalWrites, except: notWithJSON("write it in place")},
	{name: "a write in place", do: writeInPlace},
	{name: "trees there and back", do: trees, except: notWithJSON("permissions")},
}

func bigFile(v *scenarioRun) error { return thereAndBack(v, 20<<20, client.UploadOptions{}) }

func bigFileInPlace(v *scenarioRun) error {
	return thereAndBack(v, 8<<20, client.UploadOptions{InPlace: true})
}

func thereAndBack(v *scenarioRun, size int64, options client.UploadOptions) error {
	uploaded, err := v.client.Upload(v.ctx, v.path("big"), testproc.StdoutPattern.Reader(size), options)
	if err != nil {
		return err
	}
	checked := testproc.StdoutPattern.NewVerifier()
	downloaded, err := v.client.Download(v.ctx, v.path("big"), checked, client.DownloadOptions{})
	if err != nil {
		return err
	}
	if uploaded.Size != size || downloaded.Size != size || checked.Offset() != uint64(size) || downloaded.Changed {
		v.Errorf("sent %+v and received %+v, %d bytes right", uploaded, downloaded, checked.Offset())
	}
	return nil
}

func partOfFile(v *scenarioRun) error {
	v.write("file", "0123456789")
	length := int64(4)
	var got bytes.Buffer
	downloaded, err := v.client.Download(v.ctx, v.path("file"), &got, client.DownloadOptions{Offset: 3, Length: &length})
	if err != nil {
		return err
	}
	v.expectText("the part", got.String(), "3456")
	if downloaded.Size != 4 || downloaded.Metadata.GetSize() != 10 && v.endpoint.protocol != protocolReferenceOld {
		v.Errorf("downloaded %+v", downloaded)
	}
	_, err = v.client.Download(v.ctx, v.path("file"), &got, client.DownloadOptions{IfVersion: "another"})
	v.expectReason("another version", err, "FILE_CHANGED")
	return nil
}

func conditionalWrites(v *scenarioRun) error {
	upload := func(text string, options client.UploadOptions) error {
		_, err := v.client.Upload(v.ctx, v.path("file"), strings.NewReader(text), options)
		return err
	}
	if err := upload("first", client.UploadOptions{IfMissing: true}); err != nil {
		return err
	}
	v.expectReason("a file that is there", upload("x", client.UploadOptions{IfMissing: true}), "PATH_ALREADY_EXISTS")
	first, other := sha256.Sum256([]byte("first")), sha256.Sum256([]byte("other"))
	v.expectReason("other content", upload("x", client.UploadOptions{IfMatchSHA256: other[:]}), "CONTENT_NOT_MATCHED")
	v.expectFile(v.path("file"), "first")
	permissions := uint32(0o4711)
	modified := time.Date(2002, 3, 4, 5, 6, 7, 8, time.UTC)
	if err := upload("second", client.UploadOptions{IfMatchSHA256: first[:], Permissions: &permissions, ModifyTime: modified, Sync: true}); err != nil {
		return err
	}
	v.expectFile(v.path("file"), "second")
	if info, err := os.Stat(v.path("file")); err != nil || info.Mode() != 0o711|os.ModeSetuid || !info.ModTime().Equal(modified) {
		v.Errorf("it became %v, %v", info, err)
	}
	failing := errors.New("the source failed")
	_, err := v.client.Upload(v.ctx, v.path("file"), &failingReader{text: "half", err: failing}, client.UploadOptions{})
	if !errors.Is(err, failing) || !errors.As(err, new(*client.ReadError)) {
		v.Errorf("a source that fails: %v", err)
	}
	v.expectFile(v.path("file"), "second")
	return v.expectEntries(v.dir, client.DirEntry{Name: "file", Type: regularFile, TargetType: regularFile})
}

// failingReader returns a text and then an error.
type failingReader struct {
	text string
	err  error
}

func (r *failingReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, r.err
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

func writeInPlace(v *scenarioRun) error {
	v.write("file", "a longer text")
	if err := os.Link(v.path("file"), v.path("other name")); err != nil {
		v.Fatal(err)
	}
	if _, err := v.client.Upload(v.ctx, v.path("file"), strings.NewReader("short"), client.UploadOptions{InPlace: true}); err != nil {
		return err
	}
	v.expectFile(v.path("other name"), "short")
	return nil
}

func trees(v *scenarioRun) error {
	v.grow()
	there, back := filepath.Join(harness.ShortDir(v), "there"), filepath.Join(harness.ShortDir(v), "back")
	sent, err := v.client.Push(v.ctx, v.dir, there, client.TransferOptions{Recursive: true, Preserve: true})
	if err != nil {
		return err
	}
	got, err := v.client.Pull(v.ctx, there, back, client.TransferOptions{Recursive: true, Preserve: true})
	if err != nil {
		return err
	}
	if sent != got || sent.Files != 5 || sent.Links != 1 || sent.Directories != 4 {
		v.Errorf("sent %+v and received %+v", sent, got)
	}
	if a, b := reportedEntries(v, v.dir), reportedEntries(v, back); !slices.Equal(a, b) {
		v.Errorf("received %q, want %q", b, a)
	}
	again, err := v.client.Push(v.ctx, v.dir, there, client.TransferOptions{Recursive: true, Update: true})
	if err == nil && (again.Files != 0 || again.Skipped == 0) {
		v.Errorf("again: %+v", again)
	}
	return err
}

// reportedEntries lists a tree of this machine: names, modes and content.
func reportedEntries(v *scenarioRun, root string) (list []string) {
	v.Helper()
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := e.Info()
		text := ""
		switch {
		case err != nil:
		case e.Type() == os.ModeSymlink:
			text, err = os.Readlink(path)
		case e.Type().IsRegular():
			var content []byte
			content, err = os.ReadFile(path)
			text = string(content)
		}
		list = append(list, strings.TrimPrefix(path, root)+" "+info.Mode().String()+" "+text)
		return err
	})
	if err != nil {
		v.Fatal(err)
	}
	return list
}
