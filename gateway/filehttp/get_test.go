package filehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// content returns bytes of which no two parts are equal.
func content(size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		fmt.Fprintln(&b, b.Len())
	}
	return b.Bytes()[:size]
}

func TestGet_Ranges(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		for _, size := range []int{100, 1 << 20} {
			all := content(size)
			path := f.write("f", all)
			f.expect(f.do("GET", path, nil), 200, string(all))
			if head := f.do("HEAD", path, nil); head.ContentLength != int64(size) || head.Header.Get("Accept-Ranges") != "bytes" {
				t.Errorf("HEAD: %v", head.Header)
			}
			for _, test := range []struct {
				value       string
				first, last int // -1: the whole file
			}{
				{"bytes=0-0", 0, 0}, {"bytes=5-", 5, size - 1}, {"bytes=-7", size - 7, size - 1},
				{"bytes=50-9999999", 50, size - 1}, {"bytes=0-", 0, size - 1}, {"bytes=1-2,5-6", -1, 0}, {"lines=1-2", -2, 0},
				{fmt.Sprintf("bytes=%d-", size), -2, 0},
			} {
				r := f.do("GET", path, nil, "Range", test.value)
				switch {
				case test.first == -1:
					f.expect(r, 200, string(all))
				case test.first == -2:
					if r.StatusCode != http.StatusRequestedRangeNotSatisfiable {
						t.Errorf("%s: %s", test.value, r.Status)
					}
				default:
					f.expect(r, 206, string(all[test.first:test.last+1]))
					if got, want := r.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", test.first, test.last, size); got != want {
						t.Errorf("%s: %s, want %s", test.value, got, want)
					}
				}
			}
		}
	})
}

// A file that the server passes on is sent without a copy, up to its last part.
func TestGet_PassedFile_IsSentDirectly(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		all := string(content(4 << 20))
		f.expect(f.do("GET", f.write("f", []byte(all)), nil), 200, all)
		if direct := f.direct.Load(); copied && direct > 0 || !copied && direct < 3<<20 {
			t.Errorf("%d bytes were sent directly", direct)
		}
	})
}

func TestGet_Conditions(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		path := f.write("f", []byte("content"))
		old := f.do("GET", path, nil).Header.Get("ETag")
		f.expect(f.do("GET", path, nil, "If-None-Match", old), 304, "")
		f.expect(f.do("GET", path, nil, "If-Match", old), 200, "content")
		f.expect(f.do("GET", path, nil, "Range", "bytes=1-2", "If-Range", old), 206, "on")
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		now := f.do("HEAD", path, nil).Header
		if tag := now.Get("ETag"); tag == old || tag == "" {
			t.Errorf("the changed file has ETag %s", tag)
		}
		f.expect(f.do("GET", path, nil, "If-None-Match", old), 200, "content")
		f.expect(f.do("GET", path, nil, "If-Match", old), 412, "")
		f.expect(f.do("GET", path, nil, "Range", "bytes=1-2", "If-Range", old), 200, "content")
		f.expect(f.do("GET", path, nil, "If-Modified-Since", now.Get("Last-Modified")), 304, "")
		f.expect(f.do("GET", path, nil, "Range", "bytes=1-2", "If-Range", now.Get("Last-Modified")), 200, "content") // too coarse
		if fresh := f.do("HEAD", f.write("new", nil), nil).Header.Get("Last-Modified"); fresh != "" {
			t.Errorf("a file that was just written has Last-Modified %s", fresh)
		}
	})
}

func TestGet_Paths(t *testing.T) {
	t.Parallel()
	f := newFixture(t, settings{})
	for _, name := range []string{"a b?#%&+ü.txt", "%2e%2e", "\xff\xfe", "..."} {
		f.write(name, []byte(name))
		f.expect(f.do("GET", f.dir+"/"+url.PathEscape(name), nil), 200, name)
	}
	for path, status := range map[string]int{
		f.dir + "/../x": 400, f.dir + "/%2e%2e/x": 400, f.dir + "/./x": 400, f.dir + "/%00": 400, f.dir + "/missing": 404, "/": 404,
		f.dir: 409, f.dir + "/...%2fx": 404,
	} {
		// Not by http.Client, which cleans paths.
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET /v1/files%s HTTP/1.1\r\nHost: x\r\n\r\n", path) // the response says so
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s: %v, %v, want %d", path, resp, err, status)
		}
		_ = conn.Close()
	}
	if r := f.do("GET", f.dir, nil); !strings.Contains(r.body, "IS_A_DIRECTORY") || !strings.Contains(r.body, "ReadDirectory") {
		t.Errorf("a directory: %s", r.body)
	}
	if err := unix.Mkfifo(f.dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if r := f.do("GET", f.dir+"/fifo", nil); r.StatusCode != 409 || !strings.Contains(r.body, "NOT_A_REGULAR_FILE") {
		t.Errorf("a FIFO: %s %s", r.Status, r.body)
	}
	for _, method := range []string{"DELETE", "POST", "PATCH"} {
		if r := f.do(method, f.dir+"/...", nil); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD, PUT" {
			t.Errorf("%s: %s, %v", method, r.Status, r.Header)
		}
	}
}

func TestGet_UnknownSize_IsComplete(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		for _, path := range []string{"/proc/version", "/proc/kallsyms", "/sys/kernel/mm/transparent_hugepage/enabled"} {
			want, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			f.expect(f.do("GET", path, nil), 200, string(want))
		}
		f.expect(f.do("GET", f.write("empty", nil), nil), 200, "")
	})
}

// No file acts as a page of the server's origin, and no page of another site reads one
// without a signed URL.
func TestGet_Browsers(t *testing.T) {
	t.Parallel()
	f, signed := newFixture(t, settings{}), newFixture(t, settings{})
	signed.dir = f.dir
	for name, want := range map[string]string{
		"p.html": "attachment", "p.svg": "attachment", "p.js": "attachment", "p.pdf": "attachment", "p": "attachment",
		"p.txt": "inline", "p.png": "inline", "p.JPG": "inline",
	} {
		h := f.do("HEAD", f.write(name, nil), nil).Header
		got, _, _ := strings.Cut(h.Get("Content-Disposition"), ";")
		if got != want || h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Cache-Control") != "private, no-cache" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Content-Type") == "" {
			t.Errorf("%s: %v", name, h)
		}
	}
	for _, test := range []struct {
		headers []string
		status  int
	}{
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403}, {[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Sec-Fetch-Site", "none"}, 200}, {[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Origin", "https://allowed"}, 200},
	} {
		if r := f.do("GET", f.dir+"/p.png", nil, test.headers...); r.StatusCode != test.status {
			t.Errorf("%v: %s", test.headers, r.Status)
		}
	}
}

// A response with content of two versions of a file never looks complete.
func TestGet_FileChanges_BreaksResponse(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		for name, change := range map[string]func(path string) error{
			"truncated": func(path string) error { return os.Truncate(path, 1<<20) },
			"grown":     func(path string) error { return os.Truncate(path, 25<<20) },
			"rewritten": func(path string) error {
				file, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err == nil {
					_, err = file.WriteAt([]byte("new"), 20<<20)
					err = errors.Join(err, file.Close())
				}
				return err
			},
		} {
			path := f.write("f", nil)
			if err := os.Truncate(path, 24<<20); err != nil { // more than the buffers on the way
				t.Fatal(err)
			}
			resp, err := f.client.Get(f.url(path))
			if err != nil {
				t.Fatal(err)
			}
			// A change within a tick of the clock has the same time.
			if err := errors.Join(change(path), os.Chtimes(path, time.Time{}, time.Now().Add(time.Second))); err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if err == nil {
				t.Errorf("%s: %d bytes without an error", name, n)
			}
		}
	})
}

// A replaced file has the old content until its end.
func TestGet_FileReplaced_SendsOldContent(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied})
		old := bytes.Repeat([]byte("old "), 4<<20)
		path := f.write("f", old)
		resp, err := f.client.Get(f.url(path))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := os.Rename(f.write("new", []byte("new")), path); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, old) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

// A client that takes nothing for the idle timeout is disconnected, and disturbs no other.
func TestGet_SlowReader_IsBounded(t *testing.T) {
	each(t, func(t *testing.T, copied bool) {
		f := newFixture(t, settings{copied: copied, idle: 4 * time.Second}) // the neighbour, too, must be served within it
		path := f.write("f", nil)
		if err := os.Truncate(path, 24<<20); err != nil {
			t.Fatal(err)
		}
		slow, err := f.client.Get(f.url(path))
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Body.Close()
		f.expect(f.do("GET", f.write("g", []byte("g")), nil), 200, "g")
		for range 2 {
			<-f.served
		}
		if _, err := io.Copy(io.Discard, slow.Body); err == nil {
			t.Error("the slow client got the whole file")
		}
	})
}

// A required sandbox refuses the same files as with gRPC.
func TestFiles_RequiredSandbox_Confines(t *testing.T) {
	t.Parallel()
	inside, outside := t.TempDir(), t.TempDir()
	entry := &execwirev1.SandboxEntry{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, Place: &execwirev1.SandboxEntry_Path{Path: inside}}
	f := newFixture(t, settings{required: &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: &execwirev1.RestrictedFileSystem{
			Entries: []*execwirev1.SandboxEntry{entry}}}}}}}})
	f.dir = outside
	path := f.write("f", []byte("secret"))
	stream, err := f.files.DownloadFile(context.Background(), &execwirev1.DownloadFileRequest{Path: path})
	if err == nil {
		_, err = stream.Recv()
	}
	refused := f.do("GET", path, nil)
	if err == nil || refused.StatusCode < 400 || !strings.Contains(err.Error(), message(refused)) {
		t.Errorf("GET: %s %s, DownloadFile: %v", refused.Status, refused.body, err)
	}
	if r := f.do("PUT", path, strings.NewReader("x")); r.StatusCode < 400 {
		t.Errorf("PUT: %s", r.Status)
	}
	f.expectFile("f", "secret")
	f.dir = inside
	large := string(content(1 << 20))
	f.expect(f.do("PUT", inside+"/g", strings.NewReader(large)), 201, "")
	f.expect(f.do("GET", inside+"/g", nil), 200, large)
	f.expect(f.do("GET", inside+"/g", nil, "Range", "bytes=-5"), 206, large[len(large)-5:])
}
