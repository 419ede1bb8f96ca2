package daemon_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testcert"
)

const signGet, signPut = execwirev1.FileURLMethod_FILE_URL_METHOD_GET, execwirev1.FileURLMethod_FILE_URL_METHOD_PUT

// webFiles is a daemon whose files are read and written over HTTP.
type webFiles struct {
	*locked
	path   string // of a file
	keys   string // file with the keys of signed URLs
	client http.Client
}

func newWebFiles(t *testing.T, change func(*config.Config)) *webFiles {
	t.Helper()
	w := &webFiles{}
	w.locked = lock(t, func(cfg *config.Config) {
		cfg.Listen = []string{"tcp://127.0.0.1:0"}
		w.keys = testcert.WriteFile(t, filepath.Join(filepath.Dir(cfg.Principals), "keys"), []byte(strings.Repeat("1", 40)+"\n"))
		cfg.SignedURLKeys = w.keys
		change(cfg)
	}, func(l *locked) string {
		return l.principal("reader", `"read_files"`) + l.principal("writer", `"write_files"`) + l.principal("viewer", `"view"`) +
			l.principal("gateway", `"read_files"`, `on_behalf_of = ["user:*"]`)
	})
	w.path = testcert.WriteFile(t, filepath.Join(w.dir, "f"), []byte("content"))
	w.client.Transport = &http.Transport{DisableKeepAlives: true}
	return w
}

// sign returns a signed URL of the file.
func (w *webFiles) sign(name string, method execwirev1.FileURLMethod, onBehalfOf ...string) string {
	w.t.Helper()
	resp, err := execwirev1.NewFileSystemServiceClient(w.dial(onGRPC)).SignFileURL(w.as(name, onBehalfOf...), &execwirev1.SignFileURLRequest{Path: w.path, Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetUrl()
}

// do makes a request with the token of a principal, or none, and returns its status.
func (w *webFiles) do(method, relative, name, body string) int {
	w.t.Helper()
	r, err := http.NewRequest(method, strings.Replace(w.urls[0], "tcp://", "http://", 1)+relative, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if name != "" {
		r.Header.Set("Authorization", "Bearer "+tokenOf(name))
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode
}

func (w *webFiles) expectStatus(want int, method, relative, name string) {
	w.t.Helper()
	if got := w.do(method, relative, name, "new"); got != want {
		w.t.Errorf("%s %s as %q: %d, want %d", method, relative, name, got, want)
	}
}

// await repeats a request until it has the status: tables and keys are looked at once a
// second.
func (w *webFiles) await(want int, method, relative string) {
	w.t.Helper()
	for w.do(method, relative, "", "") != want {
		if w.ctx.Err() != nil {
			w.t.Fatalf("%s %s does not become %d", method, relative, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestFilesOverHTTP_Permissions(t *testing.T) {
	t.Parallel()
	w := newWebFiles(t, many)
	file := "/v1/files" + w.path
	for _, test := range []struct {
		method, name string
		status       int
	}{
		{"GET", "", 401}, {"GET", "viewer", 403}, {"GET", "reader", 200}, {"HEAD", "reader", 200}, {"GET", "writer", 403},
		{"PUT", "", 401}, {"PUT", "reader", 403}, {"PUT", "writer", 200}, {"DELETE", "writer", 405},
	} {
		w.expectStatus(test.status, test.method, file, test.name)
	}
	if content, err := os.ReadFile(w.path); err != nil || string(content) != "new" {
		t.Errorf("%q, %v", content, err)
	}
}

// A signed URL allows what was signed, as long as its principal may do it.
func TestSignedURL(t *testing.T) {
	t.Parallel()
	w := newWebFiles(t, many)
	get, put := w.sign("reader", signGet), w.sign("writer", signPut)
	expired, err := url.Parse(get)
	if err != nil {
		t.Fatal(err)
	}
	query := expired.Query()
	query.Set("expires", "1000")
	expired.RawQuery = query.Encode()
	for _, test := range []struct {
		method, url string
		status      int
	}{
		{"GET", get, 200}, {"HEAD", get, 200}, {"PUT", get, 401}, {"PUT", put, 200}, {"GET", put, 401},
		{"HEAD", put + "&upload_id=none", 404}, {"HEAD", get + "&upload_id=none", 401},
		{"GET", strings.Replace(get, w.path, w.path+"x", 1), 401}, {"GET", strings.Replace(get, "principal=reader", "principal=gateway", 1), 401},
		{"GET", expired.String(), 401}, {"GET", get[:len(get)-3], 401}, {"GET", w.sign("gateway", signGet, "user:eve"), 200},
	} {
		w.expectStatus(test.status, test.method, test.url, "")
	}
	w.expectStatus(401, "PUT", get, "writer") // the URL counts, not the token
	if log := w.log.String(); strings.Contains(log, query.Get("signature")) {
		t.Error("the log has a signature")
	}
	w.writeTable(w.principal("reader", `"view"`) + w.principal("writer", `"all"`))
	w.await(403, "GET", get)
	w.writeTable(w.principal("writer", `"all"`))
	w.await(401, "GET", get)
	testcert.WriteFile(t, w.keys, []byte(strings.Repeat("2", 40)+"\n"))
	w.await(401, "PUT", put)
}

// Invalid signatures lock out an address from signed URLs only: a page of another site can
// embed such URLs.
func TestSignedURL_Forged_LocksOutSignedURLsOnly(t *testing.T) {
	t.Parallel()
	w := newWebFiles(t, func(cfg *config.Config) {
		cfg.FailedAttempts, cfg.FailedAttemptInterval = 2, config.Duration(time.Hour)
	})
	get := w.sign("reader", signGet)
	for _, status := range []int{401, 401, 429} {
		w.expectStatus(status, "GET", "/v1/files"+w.path+"?signature=AAAA", "")
	}
	w.expectStatus(429, "GET", get, "")
	w.expectStatus(200, "GET", "/v1/files"+w.path, "reader")
	for _, status := range []int{401, 401, 429} {
		w.expectStatus(status, "GET", "/v1/files"+w.path, "nobody")
	}
}
