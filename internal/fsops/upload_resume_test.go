package fsops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execwire/execwire/internal/fsops"
)

// interrupted uploads a part of a content and disconnects.
func interrupted(t *testing.T, uploads *fsops.Uploads, how fsops.Replacement, part string) {
	t.Helper()
	u, err := uploads.Begin(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), []byte(part)); err != nil {
		t.Error(err)
	}
	u.Leave()
}

// The stream is cut while the server reads the file that has to match. The
// received part is kept.
func TestUpload_CutWhileMatching_IsKept(t *testing.T) {
	dir := build(t, "f = old")
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	how := fsops.Replacement{Path: dir + "/f", Owner: "me", ID: "u"}
	interrupted(t, uploads, how, "new")
	how.Offset, how.IfMatch = 3, sum("old")
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // some are cut before they read
		if _, err := uploads.Begin(cut, how); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cut stream: %v", err)
		}
	}
	u, err := uploads.Begin(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Leave()
	if done, err := u.Commit(t.Context(), sum("new")); err != nil || done.Size != 3 {
		t.Errorf("%+v, %v", done, err)
	}
}

// The content is complete after any number of cuts and resumes.
func TestUpload_ResumesFromAnyOffset(t *testing.T) {
	eachStore(t, func(t *testing.T, uploads *fsops.Uploads) {
		random := rand.New(rand.NewPCG(6, 1))
		dir := t.TempDir()
		for round := range 30 {
			content := make([]byte, 1+random.IntN(100_000))
			for i := range content {
				content[i] = byte(random.Uint32())
			}
			how := fsops.Replacement{Path: fmt.Sprintf("%s/%d", dir, round), Owner: "me", ID: "u"}
			received := 0
			for cut := 0; cut < 10; cut++ {
				if received > 0 {
					how.Offset = int64(1 + random.IntN(received))
				}
				upTo := received + random.IntN(len(content)-received+1)
				if random.IntN(10) == 0 { // a client without state starts again
					how.Offset, received = 0, 0
				}
				upTo = max(upTo, int(how.Offset))
				interrupted(t, uploads, how, string(content[how.Offset:upTo]))
				received = max(received, upTo)
				state, err := uploads.Find("me", "u")
				if err != nil || state.Received != int64(received) || state.Path != how.Path {
					t.Fatalf("after %d bytes: %+v, %v", received, state, err)
				}
			}
			how.Offset = int64(received)
			u, err := uploads.Begin(t.Context(), how)
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Write(t.Context(), content[received:]); err != nil {
				t.Fatal(err)
			}
			if _, err := u.Commit(t.Context(), sum(string(content))); err != nil {
				t.Fatal(err)
			}
			u.Leave()
			if got, err := os.ReadFile(how.Path); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("the file has %d bytes of %d, or a different content: %v", len(got), len(content), err)
			}
		}
	})
}

func TestUpload_OtherOwnerOrPath_Fails(t *testing.T) {
	dir := t.TempDir()
	uploads := fsops.NewUploads(time.Minute, 2, 2)
	defer uploads.Close()
	mine := fsops.Replacement{Path: dir + "/f", Owner: "me", ID: "u"}
	interrupted(t, uploads, mine, "12345")
	_, err := uploads.Find("you", "u")
	wantError(t, "of another owner", err, fsops.UploadNotFound, 0)
	on := mine
	on.Offset, on.Path = 5, dir+"/g"
	_, err = uploads.Begin(t.Context(), on)
	wantError(t, "another path", err, fsops.UploadOtherPath, 0)
	on.Offset, on.Path = 6, dir+"/./f"
	_, err = uploads.Begin(t.Context(), on)
	var typed *fsops.Error
	if wantError(t, "an offset beyond", err, fsops.UploadOffsetInvalid, 0); errors.As(err, &typed) && typed.Limit != 5 {
		t.Errorf("the reported offset is %d", typed.Limit)
	}
	other := mine
	other.ID = "v"
	interrupted(t, uploads, other, "x")
	on.Offset = 5
	if _, err := replace(t.Context(), uploads, on, "67"); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "f mode=644 = 1234567")
}

// Further uploads fail until a stream has ended. Uploads of other owners do not
// count.
func TestUploads_StreamsPerOwner_AreBounded(t *testing.T) {
	dir := t.TempDir()
	uploads := fsops.NewUploads(time.Minute, 2, 2)
	defer uploads.Close()
	how := func(owner, id string, offset int64) fsops.Replacement {
		return fsops.Replacement{Path: dir + "/f", Owner: owner, ID: id, Offset: offset}
	}
	interrupted(t, uploads, how("me", "0", 0), "x")
	var streams []*fsops.Upload
	for _, id := range []string{"1", "2"} {
		u, err := uploads.Begin(t.Context(), how("me", id, 0))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, u)
	}
	refused := func(what string, how fsops.Replacement) {
		t.Helper()
		_, err := uploads.Begin(t.Context(), how)
		var typed *fsops.Error
		if wantError(t, what, err, fsops.TooManyUploads, 0); errors.As(err, &typed) && typed.Limit != 2 {
			t.Errorf("the limit is %d", typed.Limit)
		}
	}
	refused("a third stream", how("me", "3", 0))
	refused("a third stream, which goes on", how("me", "0", 1))
	interrupted(t, uploads, how("you", "3", 0), "x")
	streams[0].Leave()
	interrupted(t, uploads, how("me", "0", 1), "x")
	streams[1].Leave()
}

// Unfinished uploads without a stream do not keep their owner from starting
// others.
func TestUploads_Abandoned_OldestAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		uploads := fsops.NewUploads(time.Minute, 1, 2)
		defer uploads.Close()
		for i := range 5 {
			interrupted(t, uploads, fsops.Replacement{Path: dir + "/f", Owner: "me", ID: fmt.Sprint(i)}, "x")
			interrupted(t, uploads, fsops.Replacement{Path: dir + "/f", Owner: "you", ID: "0"}, "x")
			time.Sleep(time.Second)
		}
		for i, want := range []fsops.Kind{fsops.UploadNotFound, fsops.UploadNotFound, fsops.UploadNotFound, 0, 0} {
			_, err := uploads.Find("me", fmt.Sprint(i))
			wantError(t, fmt.Sprint(i), err, want, 0)
		}
		if _, err := uploads.Find("you", "0"); err != nil {
			t.Error(err)
		}
		if _, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/f", Owner: "me", ID: "3", Offset: 1}, "y"); err != nil {
			t.Error(err)
		}
		wantTree(t, dir, "f mode=644 = xy")
	})
}

func TestUpload_SecondStream_TakesOver(t *testing.T) {
	dir := t.TempDir()
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	how := fsops.Replacement{Path: dir + "/f", ID: "u"}
	begin := func(offset int64, data string) *fsops.Upload {
		how.Offset = offset
		u, err := uploads.Begin(t.Context(), how)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Write(t.Context(), []byte(data)); err != nil {
			t.Error(err)
		}
		return u
	}
	first := begin(0, "123")
	second := begin(3, "45")
	wantError(t, "the first stream writes", first.Write(t.Context(), []byte("x")), fsops.UploadTakenOver, 0)
	anew := begin(0, "abc")
	_, err := second.Commit(t.Context(), nil)
	wantError(t, "the second stream commits", err, fsops.UploadTakenOver, 0)
	first.Leave()
	second.Leave()
	if _, err := anew.Commit(t.Context(), sum("abc")); err != nil {
		t.Error(err)
	}
	anew.Leave()
	wantTree(t, dir, "f mode=644 = abc")
}

func TestUploads_Expire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := build(t, "f = old")
		uploads := fsops.NewUploads(10*time.Minute, 4, 4).WithNames()
		defer uploads.Close()
		how := fsops.Replacement{Path: dir + "/f", ID: "u"}
		interrupted(t, uploads, how, "12")
		state, err := uploads.Find("", "u")
		if err != nil || time.Until(state.Expires) != 10*time.Minute {
			t.Errorf("%+v, %v", state, err)
		}
		time.Sleep(10*time.Minute - 1)
		how.Offset = 2
		u, err := uploads.Begin(t.Context(), how)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // uploads with a stream do not expire
		if state, err := uploads.Find("", "u"); err != nil || !state.Expires.IsZero() {
			t.Errorf("%+v, %v", state, err)
		}
		u.Leave()
		time.Sleep(10*time.Minute - 1)
		if _, err := uploads.Find("", "u"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		_, err = uploads.Find("", "u")
		wantError(t, "afterwards", err, fsops.UploadNotFound, 0)
		wantTree(t, dir, "f mode=644 = old")
	})
}

// The response was lost, and a new stream resumes the upload.
func TestUpload_Completed_RepeatsResult(t *testing.T) {
	dir := t.TempDir()
	uploads := fsops.NewUploads(time.Minute, 2, 2)
	defer uploads.Close()
	how := fsops.Replacement{Path: dir + "/f", ID: "u", IfMissing: true}
	first, err := replace(t.Context(), uploads, how, "content")
	if err != nil {
		t.Fatal(err)
	}
	if state, err := uploads.Find("", "u"); err != nil || !state.Complete || state.Received != 7 || state.Expires.IsZero() {
		t.Errorf("%+v, %v", state, err)
	}
	if err := os.Remove(dir + "/f"); err != nil {
		t.Fatal(err)
	}
	how.Offset = 3
	again, err := replace(t.Context(), uploads, how, "tent")
	if err != nil || !bytes.Equal(again.SHA256, first.SHA256) || again.Metadata.Version() != first.Metadata.Version() {
		t.Errorf("%+v and then %+v, %v", first, again, err)
	}
	wantTree(t, dir)
	how.Offset = 7
	_, err = replace(t.Context(), uploads, how, "more")
	wantError(t, "more content", err, fsops.UploadOffsetInvalid, 0)
	how.Offset = 8
	_, err = uploads.Begin(t.Context(), how)
	wantError(t, "beyond the end", err, fsops.UploadOffsetInvalid, 0)
	how.Offset = 5
	_, err = replace(t.Context(), uploads, how, "")
	wantError(t, "less content", err, fsops.DigestMismatch, 0)
	how.Offset = 0
	if _, err = replace(t.Context(), uploads, how, "anew"); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "f mode=644 = anew")
}

// Completed uploads do not keep their owner from starting others.
func TestUploads_Completed_OldestAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		uploads := fsops.NewUploads(time.Minute, 2, 2)
		defer uploads.Close()
		for i := range 5 {
			if _, err := replace(t.Context(), uploads, fsops.Replacement{Path: dir + "/f", ID: fmt.Sprint(i)}, "x"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		for i, want := range []fsops.Kind{fsops.UploadNotFound, fsops.UploadNotFound, fsops.UploadNotFound, 0, 0} {
			_, err := uploads.Find("", fmt.Sprint(i))
			wantError(t, fmt.Sprint(i), err, want, 0)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		_, err := uploads.Find("", "4")
		wantError(t, "afterwards", err, fsops.UploadNotFound, 0)
	})
}

func TestUploads_Close_RemovesAll(t *testing.T) {
	dir := build(t, "f = old")
	uploads := fsops.NewUploads(time.Minute, 4, 4).WithNames()
	how := fsops.Replacement{Path: dir + "/f", ID: "u"}
	interrupted(t, uploads, how, "12")
	how.ID = "v"
	u, err := uploads.Begin(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	uploads.Close()
	u.Leave()
	for _, id := range []string{"u", "v"} {
		_, err := uploads.Find("", id)
		wantError(t, id, err, fsops.UploadNotFound, 0)
	}
	wantTree(t, dir, "f mode=644 = old")
}

// The wait ends with its call. The received content is kept.
func TestUpload_CommitCancelled_CanBeRepeated(t *testing.T) {
	dir := build(t, "f = "+strings.Repeat("x", 1000))
	uploads := fsops.NewUploads(time.Minute, 4, 4)
	defer uploads.Close()
	how := fsops.Replacement{Path: dir + "/f", ID: "u", IfMatch: sum(strings.Repeat("x", 1000))}
	u, err := uploads.Begin(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Write(t.Context(), []byte("new")); err != nil {
		t.Error(err)
	}
	ctx, cancel := cancellable(t)
	enough := errors.New("enough")
	cancel(enough)
	if _, err := u.Commit(ctx, nil); !errors.Is(err, enough) {
		t.Errorf("Commit returned %v", err)
	}
	u.Leave()
	how.Offset = 3
	if _, err := replace(t.Context(), uploads, how, ""); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "f mode=644 = new")
}
