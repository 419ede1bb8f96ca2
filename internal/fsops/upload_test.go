package fsops_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/fsops"
)

// eachStore runs a test with unnamed temporary files, and with hidden ones.
func eachStore(t *testing.T, test func(t *testing.T, uploads *fsops.Uploads)) {
	t.Run("unnamed", func(t *testing.T) {
		uploads := fsops.NewUploads(10*time.Minute, 4, 4)
		defer uploads.Close()
		test(t, uploads)
	})
	t.Run("named", func(t *testing.T) {
		uploads := fsops.NewUploads(10*time.Minute, 4, 4).WithNames()
		defer uploads.Close()
		test(t, uploads)
	})
}

// replace uploads a content in two parts.
func replace(ctx context.Context, uploads *fsops.Uploads, how fsops.Replacement, content string) (fsops.Replaced, error) {
	u, err := uploads.Begin(ctx, how)
	if err != nil {
		return fsops.Replaced{}, err
	}
	defer u.Leave()
	for _, piece := range []string{content[:len(content)/2], content[len(content)/2:]} {
		if err := u.Write(ctx, []byte(piece)); err != nil {
			return fsops.Replaced{}, err
		}
	}
	return u.Commit(ctx, nil)
}

// sum returns the SHA-256 of a text.
func sum(text string) []byte {
	digest := sha256.Sum256([]byte(text))
	return digest[:]
}

func TestUpload_KeepsMetadataAndLinks(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "f mode=640 = old", "d/", "d/l -> ../f", "ll -> d/l", "dangling -> d/new", "absolute -> "+t.TempDir()+"/x")
		if err := os.Chown(dir+"/f", nobody, nobody); err != nil {
			t.Fatal(err)
		}
		done, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/ll"}, "new content")
		if err != nil || done.Size != 11 || !bytes.Equal(done.SHA256, sum("new content")) || done.Metadata.Mode != 0o640 || done.Metadata.UID != nobody {
			t.Errorf("replacing through links: %+v, %v", done, err)
		}
		for _, name := range []string{"/g", "/dangling", "/absolute"} {
			if _, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + name}, "x"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		target, _ := os.Readlink(dir + "/absolute")
		if content, err := os.ReadFile(target); err != nil || string(content) != "x" {
			t.Errorf("the target of the absolute link has %q: %v", content, err)
		}
		wantTree(t, dir, "f mode=640 = new content", "d/ mode=755", "d/l -> ../f", "ll -> d/l", "dangling -> d/new", "d/new mode=644 = x", "g mode=644 = x",
			"absolute -> "+target)
	})
}

func TestUpload_AppliesRequestedMetadata(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "f mode=640 = old")
		when := time.Unix(1_000_000_000, 123_456_789)
		bits := uint32(0o4751)
		done, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/f", Permissions: &bits, ModifyTime: when, Sync: true}, "new")
		if m := done.Metadata; err != nil || m.Mode != bits || !m.ModifyTime.Equal(when) || m.Links != 1 {
			t.Errorf("%+v, %v", m, err)
		}
		seen, err := fsops.Stat(dir + "/f")
		if err != nil || seen.Version() != done.Metadata.Version() {
			t.Errorf("the version is %q, and then %q: %v", done.Metadata.Version(), seen.Version(), err)
		}
		none := uint32(0)
		if done, err = replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/f", Permissions: &none}, ""); err != nil || done.Metadata.Mode != 0 || done.Metadata.Size != 0 {
			t.Errorf("%+v, %v", done.Metadata, err)
		}
	})
}

func TestUpload_PartialContent_IsNotVisible(t *testing.T) {
	dir := build(t, "f = old")
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	u, err := uploads.Begin(t.Context(), fsops.Replacement{Path: dir + "/f"})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), []byte("ne")); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "f mode=644 = old")
	u.Leave()
	u.Leave()
	wantTree(t, dir, "f mode=644 = old")
	interrupted(t, uploads.WithNames(), fsops.Replacement{Path: dir + "/f"}, "ne")
	wantTree(t, dir, "f mode=644 = old")
}

func TestUpload_Errors_LeaveFileUnchanged(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "f = old", "d/", "fifo |", "loop -> loop", "slash -> d/", "none -> x/", "root -> /")
		before := tree(t, dir)
		refusals := []struct {
			what  string
			how   fsops.Replacement
			kind  fsops.Kind
			errno syscall.Errno
		}{
			{"a directory", fsops.Replacement{Path: dir + "/d"}, fsops.IsADirectory, unix.EISDIR},
			{"a link to a directory", fsops.Replacement{Path: dir + "/slash"}, fsops.IsADirectory, unix.EISDIR},
			{"a link to no directory", fsops.Replacement{Path: dir + "/none"}, fsops.IsADirectory, unix.EISDIR},
			{"a link to the root", fsops.Replacement{Path: dir + "/root"}, fsops.IsADirectory, unix.EISDIR},
			{"the root", fsops.Replacement{Path: "/"}, fsops.IsADirectory, unix.EISDIR},
			{"a FIFO", fsops.Replacement{Path: dir + "/fifo"}, fsops.NotRegular, 0},
			{"a link loop", fsops.Replacement{Path: dir + "/loop"}, fsops.SymlinkLoop, unix.ELOOP},
			{"no parent", fsops.Replacement{Path: dir + "/no/f"}, fsops.NotFound, unix.ENOENT},
			{"a file for a parent", fsops.Replacement{Path: dir + "/f/f"}, fsops.NotADirectory, unix.ENOTDIR},
			{"a relative path", fsops.Replacement{Path: "f"}, fsops.InvalidPath, 0},
			{"an existing file", fsops.Replacement{Path: dir + "/f", IfMissing: true}, fsops.AlreadyExists, unix.EEXIST},
			{"another content", fsops.Replacement{Path: dir + "/f", IfMatch: sum("other")}, fsops.ContentNotMatched, 0},
			{"content of a missing file", fsops.Replacement{Path: dir + "/g", IfMatch: sum("")}, fsops.ContentNotMatched, 0},
			{"an unknown upload", fsops.Replacement{Path: dir + "/f", ID: "u", Offset: 1}, fsops.UploadNotFound, 0},
		}
		for _, tt := range refusals {
			_, err := replace(t.Context(), uploads, tt.how, "new")
			wantError(t, tt.what, err, tt.kind, tt.errno)
			if tt.how.ID == "" { // an upload with an id fails as one without
				tt.how.ID = "u"
				_, err = replace(t.Context(), uploads, tt.how, "new")
				wantError(t, tt.what+" with an id", err, tt.kind, tt.errno)
			}
			_, err = uploads.Find("", "u")
			wantError(t, tt.what+" afterwards", err, fsops.UploadNotFound, 0)
		}
		for _, id := range []string{"", "u"} {
			u, err := uploads.Begin(t.Context(), fsops.Replacement{Path: dir + "/f", ID: id})
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Write(t.Context(), []byte("new")); err != nil {
				t.Error(err)
			}
			_, err = u.Commit(t.Context(), sum("what was meant"))
			wantError(t, "another digest", err, fsops.DigestMismatch, 0)
			u.Leave()
			_, err = uploads.Find("", "u")
			wantError(t, "an upload of another digest", err, fsops.UploadNotFound, 0)
		}
		wantTree(t, dir, before...)
	})
}

// The file changes during the upload.
func TestUpload_Conditions_AreCheckedAtCommit(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "f = old", "j/")
		for _, tt := range []struct {
			how    fsops.Replacement
			change func() error
			kind   fsops.Kind
			errno  syscall.Errno
		}{
			{fsops.Replacement{Path: dir + "/f", IfMatch: sum("old")}, func() error { return os.WriteFile(dir+"/f", []byte("odd"), 0o600) }, fsops.ContentNotMatched, 0},
			{fsops.Replacement{Path: dir + "/g", IfMissing: true}, func() error { return os.WriteFile(dir+"/g", []byte("mine"), 0o600) }, fsops.AlreadyExists, unix.EEXIST},
			{fsops.Replacement{Path: dir + "/h"}, func() error { return os.Mkdir(dir+"/h", 0o700) }, fsops.IsADirectory, unix.EISDIR},
			{fsops.Replacement{Path: dir + "/i"}, func() error { return syscall.Mkfifo(dir+"/i", 0o600) }, fsops.NotRegular, 0},
			{fsops.Replacement{Path: dir + "/j/f"}, func() error { return os.RemoveAll(dir + "/j") }, fsops.NotFound, unix.ENOENT},
		} {
			u, err := uploads.Begin(t.Context(), tt.how)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.change(); err != nil {
				t.Fatal(err)
			}
			_, err = u.Commit(t.Context(), nil)
			wantError(t, tt.how.Path, err, tt.kind, tt.errno)
			u.Leave()
		}
		wantTree(t, dir, "f mode=644 = odd", "g mode=600 = mine", "h/ mode=700", "i |")
	})
}

// Many uploads replace the same content.
func TestUpload_ConcurrentIfMatch_OneSucceeds(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		dir := build(t, "f = 0")
		content := "0"
		for round := range 20 {
			var won sync.Map
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					mine := fmt.Sprintf("%d by %d", round, i)
					_, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/f", IfMatch: sum(content)}, mine)
					switch {
					case err == nil:
						won.Store(mine, true)
					case fsops.KindOf(err) != fsops.ContentNotMatched:
						t.Error(err)
					}
				})
			}
			all.Wait()
			got, err := os.ReadFile(dir + "/f")
			winners := 0
			won.Range(func(_, _ any) bool { winners++; return true })
			if _, ok := won.Load(string(got)); err != nil || winners != 1 || !ok {
				t.Fatalf("%d have succeeded, and the file has %q: %v", winners, got, err)
			}
			content = string(got)
		}
	})
}

// A link replaces the file, or its directory, during the upload, and is not
// followed.
func TestUpload_ConcurrentSwap_StaysInDirectory(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		for round := range 50 {
			dir := build(t, "secret/", "secret/f = secret", "top/", "top/d/", "top/d/f = old", "top/elsewhere -> ../secret", "top/d/l -> ../../secret/f")
			u, err := uploads.Begin(t.Context(), fsops.Replacement{Path: dir + "/top/d/f"})
			if err != nil {
				t.Fatal(err)
			}
			one, other := dir+"/top/d", dir+"/top/elsewhere"
			if round%2 == 0 {
				one, other = dir+"/top/d/f", dir+"/top/d/l"
			}
			stop := swapping(t, one, other)
			if err := u.Write(t.Context(), []byte("new")); err != nil {
				t.Error(err)
			}
			_, err = u.Commit(t.Context(), nil)
			stop()
			u.Leave()
			if err != nil {
				t.Error(err)
			}
			if content, err := os.ReadFile(dir + "/secret/f"); err != nil || string(content) != "secret" {
				t.Errorf("the target of the link has %q: %v", content, err)
			}
		}
	})
}

// The kernel does not follow such links either.
func TestUpload_ForeignLinkInStickyDirectory_Fails(t *testing.T) {
	dir := build(t, "f = kept", "shared/ mode=777", "shared/theirs -> ../f", "shared/mine -> ../f")
	for _, err := range []error{os.Chmod(dir+"/shared", 0o777|os.ModeSticky), os.Lchown(dir+"/shared/theirs", nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	_, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/shared/theirs"}, "new")
	wantError(t, "a foreign link", err, fsops.PermissionDenied, unix.EACCES)
	if _, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/shared/mine"}, "new"); err != nil {
		t.Error(err)
	}
}
