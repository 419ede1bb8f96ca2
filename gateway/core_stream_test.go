package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// coreReceived is the answer to core/receive.
type coreReceived struct {
	Responses []json.RawMessage
	Ended     bool
}

func (cl *client) openStream(id, method, request string) {
	cl.t.Helper()
	cl.must("core/stream", map[string]any{"streamId": id, "method": method, "request": json.RawMessage(request)})
}

func (cl *client) receiveStream(id string) (got coreReceived) {
	cl.t.Helper()
	cl.decode(cl.must("core/receive", map[string]any{"streamId": id}), &got)
	return got
}

// receiveWhole takes a stream to its end.
func (cl *client) receiveWhole(id string) (all []json.RawMessage) {
	cl.t.Helper()
	for {
		got := cl.receiveStream(id)
		all = append(all, got.Responses...)
		if got.Ended {
			return all
		}
	}
}

// eachCore runs a test with a core in this process, and with one over a wire.
func eachCore(t *testing.T, do func(t *testing.T, cl *client)) {
	for name, wire := range map[string]bool{"in process": false, "over a wire": true} {
		t.Run(name, func(t *testing.T) { do(t, asksCore(newCore(t, func(s *coreSettings) { s.wire = wire }))) })
	}
}

func TestStreamsOfTheCore(t *testing.T) { eachCore(t, streamsOfTheCore) }

func streamsOfTheCore(t *testing.T, cl *client) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	cl.openStream("up", "FileSystemService/UploadFile", fmt.Sprintf(`{"head":{"path":%q,"mode":"UPLOAD_MODE_REPLACE","permissions":384}}`, path))
	for piece := range slices.Chunk(content, 300_000) {
		cl.ask("core/send", map[string]any{"streamId": "up", "data": piece}) // the order is kept
	}
	cl.must("core/send", map[string]any{"streamId": "up", "message": map[string]any{"end": map[string]any{}}})
	uploaded := cl.receiveStream("up")
	digest := sha256.Sum256(content)
	if !uploaded.Ended || len(uploaded.Responses) != 1 ||
		!bytes.Equal(fromJSON(t, uploaded.Responses[0], &execwirev1.UploadFileResponse{}).GetSha256(), digest[:]) {
		t.Fatalf("the upload is answered with %+v", uploaded)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}

	cl.openStream("down", "FileSystemService/DownloadFile", fmt.Sprintf(`{"path":%q,"offset":"5","wantSha256":true}`, path))
	messages := cl.receiveWhole("down")
	var got []byte
	for _, raw := range messages {
		got = append(got, fromJSON(t, raw, &execwirev1.DownloadFileResponse{}).GetData()...)
	}
	if !bytes.Equal(got, content[5:]) || fromJSON(t, messages[0], &execwirev1.DownloadFileResponse{}).GetHead() == nil ||
		fromJSON(t, messages[len(messages)-1], &execwirev1.DownloadFileResponse{}).GetEnd() == nil {
		t.Errorf("%d bytes in %d messages were downloaded", len(got), len(messages))
	}
	cl.refused("core/receive", map[string]any{"streamId": "down"}, -32004, "unknown stream")
}

// TestAStreamOfTheCoreFails is told when it is received.
func TestAStreamOfTheCoreFails(t *testing.T) { eachCore(t, aStreamFails) }

func aStreamFails(t *testing.T, cl *client) {
	missing := filepath.Join(t.TempDir(), "none")
	cl.openStream("walk", "FileSystemService/WalkDirectory", fmt.Sprintf(`{"path":%q}`, missing))
	cl.refused("core/receive", map[string]any{"streamId": "walk"}, -32004, "No such file or directory")
	cl.openStream("up", "FileSystemService/UploadFile", fmt.Sprintf(`{"head":{"path":%q,"mode":"UPLOAD_MODE_REPLACE"}}`, missing+"/below"))
	cl.refused("core/receive", map[string]any{"streamId": "up"}, -32004, "No such file or directory")
	cl.openStream("late", "FileSystemService/UploadFile", fmt.Sprintf(`{"head":{"path":%q,"mode":"UPLOAD_MODE_REPLACE"}}`, missing+"/below"))
	for failed := false; !failed; { // how much is taken before that is no matter
		f := cl.call("core/send", map[string]any{"streamId": "late", "data": make([]byte, 200_000)})
		if failed = f.Error != nil; failed && f.Error.Code != -32004 {
			t.Errorf("a piece is answered with %s", f.raw)
		}
	}
	cl.refused("core/receive", map[string]any{"streamId": "late"}, -32004, "No such file or directory")
	cl.openStream("cut", "FileSystemService/UploadFile", fmt.Sprintf(`{"head":{"path":%q,"mode":"UPLOAD_MODE_REPLACE"}}`, missing))
	if refusal := cl.refused("core/receive", map[string]any{"streamId": "cut"}, -32603, ""); refusal.Data["reason"] != "UNEXPECTED_MESSAGE" {
		t.Errorf("an upload without an end is %v", refusal)
	}
	if _, err := os.Lstat(missing); err == nil {
		t.Error("it left something")
	}
}

// TestAStreamOfTheCoreIsCancelled has one that waits be ended by its client.
func TestAStreamOfTheCoreIsCancelled(t *testing.T) { eachCore(t, aStreamIsCancelled) }

func aStreamIsCancelled(t *testing.T, cl *client) {
	cl.openStream("w", "FileSystemService/WatchDirectory", fmt.Sprintf(`{"path":%q}`, t.TempDir()))
	if got := cl.receiveStream("w"); len(got.Responses) != 1 || fromJSON(t, got.Responses[0], &execwirev1.WatchDirectoryResponse{}).GetStarted() == nil {
		t.Fatalf("a watch begins with %+v", got)
	}
	cl.refused("core/stream", map[string]any{"streamId": "w", "method": "HttpService/Fetch"}, -32600, "already exists")
	waiting := cl.ask("core/receive", map[string]any{"streamId": "w"})
	cl.must("core/cancel", map[string]any{"streamId": "w"})
	// The end may overtake who waits.
	if f := cl.reply(waiting); f.Error == nil || f.Error.Data["reason"] != "CALL_CANCELLED" && f.Error.Data["reason"] != "STREAM_NOT_FOUND" {
		t.Errorf("who waited is told %s", f.raw)
	}
	empty := t.TempDir()
	for i := range maxStreams {
		cl.openStream(fmt.Sprint(i), "FileSystemService/WalkDirectory", fmt.Sprintf(`{"path":%q}`, empty))
	}
	cl.refused("core/stream", map[string]any{"streamId": "w", "method": "HttpService/Fetch"}, -32005, "at most 128 streams")
}

// TestAStreamThatWaitsIsAnsweredWhenItsClientLeaves has nothing happen that is
// waited for.
func TestAStreamThatWaitsIsAnsweredWhenItsClientLeaves(t *testing.T) {
	cl := asksCore(newCore(t), func(p *pipe, _ *Config) { p.halves = true })
	cl.openStream("w", "FileSystemService/WatchDirectory", fmt.Sprintf(`{"path":%q}`, t.TempDir()))
	cl.receiveStream("w")
	waiting := cl.ask("core/receive", map[string]any{"streamId": "w"})
	cl.must("environment/status", nil)
	close(cl.pipe.finished)
	if f := cl.reply(waiting); f.Error == nil {
		t.Errorf("it is answered with %s", f.raw)
	}
	if err := cl.ended(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
}

func TestRequestsOverHTTPAsStreams(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer s.Close()
	cl := asksCore(newCore(t), func(_ *pipe, config *Config) { config.HTTPRequests = 1 })
	for range 3 { // each gives its place back
		cl.openStream("h", "HttpService/Fetch", fmt.Sprintf(`{"method":"GET","url":%q}`, s.URL))
		cl.refused("core/stream", map[string]any{"streamId": "more", "method": "HttpService/Fetch"}, -32005, "http_requests_per_connection")
		messages := cl.receiveWhole("h")
		if len(messages) != 2 || fromJSON(t, messages[0], &execwirev1.FetchResponse{}).GetHead().GetStatus() != 200 ||
			string(fromJSON(t, messages[1], &execwirev1.FetchResponse{}).GetData()) != "hello" {
			t.Errorf("the response is %s", messages)
		}
	}
	cl.openStream("h", "HttpService/Fetch", fmt.Sprintf(`{"method":"GET","url":%q}`, s.URL))
	cl.must("core/cancel", map[string]any{"streamId": "h"})
	cl.openStream("h", "HttpService/Fetch", `{"method":"GET","url":"http://169.254.169.254/"}`)
	if refusal := cl.refused("core/receive", map[string]any{"streamId": "h"}, -32600, ""); refusal.Data["reason"] != "HTTP_ADDRESS_REFUSED" {
		t.Errorf("the refusal is %v", refusal)
	}
	off := asksCore(newCore(t), func(_ *pipe, config *Config) { config.NoHTTP = true })
	off.refused("core/stream", map[string]any{"streamId": "h", "method": "HttpService/Fetch"}, -32601, "switched off")
}

// TestWhatWasAskedBeforeIsCancelled has requests come that are not answered yet: it
// is cancelled what came before, and nothing that comes after.
func TestWhatWasAskedBeforeIsCancelled(t *testing.T) { eachCore(t, whatWasAskedBefore) }

func whatWasAskedBefore(t *testing.T, cl *client) {
	watch := map[string]any{"streamId": "w", "method": "FileSystemService/WatchDirectory", "request": map[string]any{"path": t.TempDir()}}
	named := map[string]any{"streamId": "w"}
	cl.must("core/stream", watch)
	cl.receiveStream("w")
	waiting := cl.ask("core/receive", named)
	next := cl.ask("core/stream", watch) // when its turn comes
	cancelled := cl.ask("core/cancel", named)
	last := cl.ask("core/stream", watch)
	for name, id := range map[string]string{"what waits": waiting, "what is next": next, "the end": cancelled, "what is last": last} {
		if f := cl.reply(id); (f.Error != nil) != (id == waiting) {
			t.Errorf("%s is answered with %s", name, f.raw)
		}
	}
	if got := cl.receiveStream("w"); len(got.Responses) != 1 {
		t.Errorf("the last watch begins with %+v", got)
	}
	cl.must("core/cancel", named)
	cl.refused("core/receive", named, -32004, "unknown stream")
	var asked []string
	for range maxStreams / 2 { // each is gone when both are answered
		asked = append(asked, cl.ask("core/stream", watch), cl.ask("core/cancel", named))
	}
	for _, id := range asked {
		if f := cl.reply(id); f.Error != nil {
			t.Fatalf("it is answered with %s", f.raw)
		}
	}
	cl.refused("core/receive", named, -32004, "unknown stream")
}

// TestStreamsDoNotWaitForOthers has ids that look like paths.
func TestStreamsDoNotWaitForOthers(t *testing.T) {
	cl := asksCore(newCore(t))
	watch := fmt.Sprintf(`{"path":%q}`, t.TempDir())
	cl.openStream("a", "FileSystemService/WatchDirectory", watch)
	cl.receiveStream("a")
	waiting := cl.ask("core/receive", map[string]any{"streamId": "a"})
	cl.openStream("a/b", "FileSystemService/WatchDirectory", watch)
	cl.receiveStream("a/b")
	cl.must("core/cancel", map[string]any{"streamId": "a"})
	cl.reply(waiting)
}

// TestWatchesAsStreamsAreBounded counts them with all others.
func TestWatchesAsStreamsAreBounded(t *testing.T) {
	cl := asksCore(newCore(t), func(_ *pipe, config *Config) { config.Watches = 2 })
	dir := t.TempDir()
	cl.must("fs/watch", map[string]any{"watchId": "w", "path": dir})
	for range 3 { // each gives its place back
		cl.openStream("s", "FileSystemService/WatchDirectory", fmt.Sprintf(`{"path":%q}`, dir))
		cl.refused("core/stream", map[string]any{"streamId": "more", "method": "FileSystemService/AwaitPaths"}, -32005, "watches_per_connection")
		cl.refused("fs/watch", map[string]any{"watchId": "more", "path": dir}, -32005, "watches_per_connection")
		cl.must("core/cancel", map[string]any{"streamId": "s"})
	}
	cl.openStream("s", "FileSystemService/WatchDirectory", `{}`)
	cl.refused("core/receive", map[string]any{"streamId": "s"}, -32602, "path")
	cl.must("fs/watch", map[string]any{"watchId": "more", "path": dir})
}
