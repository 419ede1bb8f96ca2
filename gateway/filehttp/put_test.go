package filehttp_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/gateway/filehttp"
)

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// message returns the text of an error.
func message(r response) string {
	var body struct{ Message string }
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.Message == "" {
		return fmt.Sprintf("no error: %q", r.body)
	}
	return body.Message
}

func TestPut_ReplacesWholeFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{})
	path := f.dir + "/a/f"
	f.expectStatus(f.do("PUT", path, strings.NewReader("x")), 404)
	first := f.do("PUT", path+"?parents=true", strings.NewReader("first"), "Repr-Digest", digest([]byte("first")))
	f.expect(first, 201, "")
	if got := f.do("GET", path, nil); got.body != "first" || got.Header.Get("ETag") != first.Header.Get("ETag") || first.Header.Get("Repr-Digest") != digest([]byte("first")) {
		t.Errorf("PUT answered %v, GET %v", first.Header, got.Header)
	}
	f.expect(f.do("PUT", path, strings.NewReader("second"), "Content-Digest", "sha-512=:AA==:, "+digest([]byte("second"))), 200, "")
	for status, headers := range map[int][]string{
		400: {"Repr-Digest", digest([]byte("other"))},
		412: {"If-Match", first.Header.Get("ETag")},
	} {
		f.expectStatus(f.do("PUT", path, strings.NewReader("third"), headers...), status)
	}
	for _, headers := range [][]string{
		{"Repr-Digest", "sha-512=:AA==:"}, {"Repr-Digest", "sha-256=AA"}, {"If-Match", "x"}, {"If-None-Match", `"x"`}, {"Content-Encoding", "gzip"},
		{"Content-Range", "bytes 0-4/5"}, {"Repr-Digest", digest([]byte("third")), "Content-Digest", digest(nil)},
	} {
		f.expectStatus(f.do("PUT", path, strings.NewReader("third"), headers...), 400)
	}
	f.expectStatus(f.do("PUT", path, strings.NewReader("third"), "If-None-Match", "*"), 412)
	f.expectStatus(f.do("PUT", f.dir+"/b", strings.NewReader("third"), "If-Match", "*"), 412)
	f.expectStatus(f.do("PUT", f.dir+"/a", strings.NewReader("third")), 409)
	f.expectStatus(f.do("PUT", f.dir+"/b/", strings.NewReader("third")), 400)
	f.expectFile("a/f", "second")
	now := f.do("HEAD", path, nil).Header.Get("ETag")
	f.expect(f.do("PUT", path, strings.NewReader("4"), "If-Match", `"x", `+now), 200, "")
	f.expect(f.do("PUT", path, strings.NewReader("5"), "If-Match", "*"), 200, "")
	f.expect(f.do("PUT", f.dir+"/b", strings.NewReader("6"), "If-None-Match", "*"), 201, "")
	f.expectFile("a/f", "5")
}

func (f *fixture) expectStatus(r response, status int) {
	f.t.Helper()
	if r.StatusCode != status {
		f.t.Errorf("%s %s: %s %s, want %d", r.Request.Method, r.Request.URL.Path, r.Status, r.body, status)
	}
	if status >= 400 {
		message(r)
	}
}

func TestPut_SameETag_OneWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{})
	tag := f.do("PUT", f.dir+"/f", strings.NewReader("old")).Header.Get("ETag")
	var mu sync.Mutex
	statuses := map[int]int{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			r := f.do("PUT", f.dir+"/f", bytes.NewReader(content(1<<20)), "If-Match", tag)
			mu.Lock()
			defer mu.Unlock()
			statuses[r.StatusCode]++
		})
	}
	group.Wait()
	if statuses[200] != 1 || statuses[412] != 7 {
		t.Errorf("%v", statuses)
	}
}

// A body that is cut leaves nothing, or with an id an upload that can be continued.
func TestPut_Cut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{})
	all := content(1 << 20)
	path := f.write("f", []byte("old"))
	cut := func(query string, body io.Reader, headers ...string) {
		t.Helper()
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "PUT /v1/files%s%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n", path, query, len(all), strings.Join(headers, "\r\n"))
		_, _ = io.Copy(conn, body)
		_ = conn.Close()
		<-f.served
	}
	cut("", bytes.NewReader(all[:300_000]))
	f.expectFile("f", "old")
	f.expectStatus(f.do("HEAD", path+"?upload_id=u", nil), 404)
	<-f.served
	cut("?upload_id=u", bytes.NewReader(all[:300_000]))
	f.expectFile("f", "old")
	state := f.do("HEAD", path+"?upload_id=u", nil)
	if state.StatusCode != 204 || state.Header.Get("Upload-Offset") != "300000" || state.Header.Get("Upload-Complete") != "?0" {
		t.Fatalf("%s %v", state.Status, state.Header)
	}
	f.expectStatus(f.do("HEAD", f.dir+"/other?upload_id=u", nil), 404)
	part := func(first, last int, total string, headers ...string) response {
		t.Helper()
		return f.do("PUT", path+"?upload_id=u", bytes.NewReader(all[first:last+1]), append(headers, "Content-Range", fmt.Sprintf("bytes %d-%d/%s", first, last, total))...)
	}
	f.expectStatus(part(500_000, 500_001, "*"), 409) // beyond what was received
	if r := part(300_000, 399_999, "*"); r.StatusCode != 202 || r.Header.Get("Upload-Offset") != "400000" {
		t.Errorf("%s %v %s", r.Status, r.Header, r.body)
	}
	f.expectFile("f", "old")
	if r := part(350_000, len(all)-1, fmt.Sprint(len(all)), "Repr-Digest", digest(all)); r.StatusCode != 200 || r.Header.Get("Repr-Digest") != digest(all) {
		t.Errorf("%s %s", r.Status, r.body)
	}
	f.expectFile("f", string(all))
	if r := f.do("HEAD", path+"?upload_id=u", nil); r.Header.Get("Upload-Complete") != "?1" {
		t.Errorf("%s %v", r.Status, r.Header)
	}
}

// A client that sends nothing for the idle timeout is refused.
func TestPut_SlowWriter_IsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{idle: 3 * time.Second}) // the answer, too, must be sent within it
	path := f.write("f", []byte("old"))
	body, slow := io.Pipe()
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = slow.Write([]byte("new")) })
	f.expectStatus(f.do("PUT", path, body), 408)
	_ = body.Close()
	sending.Wait()
	f.expectFile("f", "old")
}

// A signed URL uploads no more than it was signed for, in one request or in several.
func TestPut_Signed_LimitsSize(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{access: filehttp.Access{Signed: true, MaxBytes: proto.Uint64(10)}})
	path := f.write("f", []byte("old"))
	chunked := func(text string) io.Reader { return io.MultiReader(strings.NewReader(text)) }
	f.expectStatus(f.do("PUT", path, strings.NewReader("eleven byte")), 413)
	f.expectStatus(f.do("PUT", path, chunked("eleven byte")), 413)
	f.expectStatus(f.do("PUT", path+"?upload_id=u", strings.NewReader("12345678"), "Content-Range", "bytes 0-7/*"), 202)
	f.expectStatus(f.do("PUT", path+"?upload_id=u", strings.NewReader("9ab"), "Content-Range", "bytes 8-10/*"), 413)
	f.expectStatus(f.do("PUT", path+"?upload_id=u", strings.NewReader("9"), "Content-Range", "bytes 8-8/11"), 413)
	f.expectStatus(f.do("PUT", path+"?parents=true", strings.NewReader("x")), 403)
	f.expectFile("f", "old")
	f.expectStatus(f.do("PUT", path+"?upload_id=u", chunked("9a"), "Content-Range", "bytes 8-9/10"), 200)
	f.expectFile("f", "123456789a")
	f.expectStatus(f.do("PUT", path, chunked("ten bytes!")), 200)
	if r := f.do("GET", path, nil, "Sec-Fetch-Site", "cross-site"); r.StatusCode != 200 || r.Header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%s %v", r.Status, r.Header)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
