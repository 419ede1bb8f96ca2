package fsops

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Another store goes on with unfinished and completed uploads, whether their files have names or not.
func TestUploads_Restore_GoesOn(t *testing.T) {
	for _, named := range []bool{false, true} {
		before := NewUploads(time.Hour, 10, 10)
		before.named = named
		dir := t.TempDir()
		content := bytes.Repeat([]byte("content "), 1000)
		digest := sha256.Sum256(content)
		begin := func(s *Uploads, id string, offset int) *Upload {
			t.Helper()
			u, err := s.Begin(t.Context(), Replacement{Path: filepath.Join(dir, id), Owner: "ann", ID: id, Offset: int64(offset)})
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		write := func(u *Upload, data []byte) {
			t.Helper()
			if err := u.Write(t.Context(), data); err != nil {
				t.Fatal(err)
			}
		}
		unfinished, completed, active := begin(before, "unfinished", 0), begin(before, "completed", 0), begin(before, "active", 0)
		defer active.Leave()
		write(unfinished, content[:3000])
		unfinished.Leave()
		write(completed, content)
		if _, err := completed.Commit(t.Context(), digest[:]); err != nil {
			t.Fatal(err)
		}
		completed.Leave()

		held, resume, err := before.Hold()
		if err != nil || len(held) != 2 {
			t.Fatalf("Hold = %+v, %v", held, err)
		}
		// In another program the descriptors would be those of the store before.
		for i := range held {
			if len(held[i].SHA256) > 0 {
				continue
			}
			for _, fd := range []*int{&held[i].Directory, &held[i].File} {
				if *fd, err = unix.Dup(*fd); err != nil {
					t.Fatal(err)
				}
			}
		}
		resume()
		after := NewUploads(time.Hour, 10, 10)
		defer after.Close()
		if err := after.Restore(held); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]UploadState{
			"unfinished": {Path: filepath.Join(dir, "unfinished"), Received: 3000},
			"completed":  {Path: filepath.Join(dir, "completed"), Received: int64(len(content)), Complete: true},
		} {
			got, err := after.Find("ann", id)
			expected, _ := before.Find("ann", id)
			if want.Expires = expected.Expires; err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", id, got, err, want)
			}
		}
		for id, offset := range map[string]int{"unfinished": 3000, "completed": 5000} {
			u := begin(after, id, offset)
			write(u, content[offset:])
			replaced, err := u.Commit(t.Context(), digest[:])
			if err != nil || replaced.Size != int64(len(content)) || !bytes.Equal(replaced.SHA256, digest[:]) || !replaced.Created {
				t.Errorf("%s: Commit = %+v, %v", id, replaced, err)
			}
			u.Leave()
			if got, err := os.ReadFile(filepath.Join(dir, id)); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s has %d bytes: %v", id, len(got), err)
			}
		}
		before.Close()
	}
}

// Nothing is dropped while uploads are held.
func TestUploads_Hold_DropsNothing(t *testing.T) {
	s := NewUploads(time.Hour, 10, 10)
	u, err := s.Begin(t.Context(), Replacement{Path: filepath.Join(t.TempDir(), "file"), Owner: "ann", ID: "id"})
	if err != nil {
		t.Fatal(err)
	}
	u.Leave()
	held, resume, err := s.Hold()
	if err != nil || len(held) != 1 {
		t.Fatalf("Hold = %+v, %v", held, err)
	}
	u.stored.expires = time.Now().Add(-time.Hour)
	expired := make(chan struct{})
	go func() {
		defer close(expired)
		s.expire(u.stored)
	}()
	if _, err := unix.FcntlInt(uintptr(held[0].File), unix.F_GETFD, 0); err != nil {
		t.Errorf("the file is closed: %v", err)
	}
	resume()
	<-expired
	if _, err := s.Find("ann", "id"); err == nil {
		t.Error("the upload is still there after its time")
	}
}
