package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
)

// newUpstream starts an HTTP server and returns its URL.
func newUpstream(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// fetch makes a request and reads the whole response.
func (f *fixture) fetch(req *execwirev1.FetchRequest) (*execwirev1.HttpHead, []byte, error) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	stream, err := f.http.Fetch(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	var body []byte
	for {
		message, err := stream.Recv()
		if err == io.EOF {
			return first.GetHead(), body, nil
		}
		if err != nil {
			return first.GetHead(), body, err
		}
		if len(message.GetData()) == 0 || len(message.GetData()) > 64<<10 {
			f.t.Errorf("a message has %d bytes", len(message.GetData()))
		}
		body = append(body, message.GetData()...)
	}
}

func getOf(url string) *execwirev1.FetchRequest {
	return &execwirev1.FetchRequest{Method: "GET", Url: url}
}

func TestFetch_SendsRequest_StreamsResponse(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	url := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, sent) || r.Method != "PUT" || r.URL.RequestURI() != "/p?q" || !slices.Equal(r.Header["X-T"], []string{"1", "\xff"}) {
			t.Errorf("the request is %s %s %q with %d bytes, %v", r.Method, r.URL.RequestURI(), r.Header, len(got), err)
		}
		w.Header()["X-Raw"] = []string{"a", "\xfe"}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(got)
	})
	head, body, err := newFixture(t).fetch(&execwirev1.FetchRequest{
		Method: "PUT", Url: url + "/p?q#f", Body: sent, Timeout: durationpb.New(testTimeout),
		Headers: []*execwirev1.HttpHeader{{Name: "X-T", Value: "1"}, {Name: "x-t", RawValue: []byte("\xff")}},
	})
	if err != nil || head.GetStatus() != http.StatusTeapot || head.GetUrl() != url+"/p?q" || !bytes.Equal(body, sent) {
		t.Fatalf("the response is %v with %d bytes, %v", head, len(body), err)
	}
	if h := head.GetHeaders(); !proto.Equal(h[0], &execwirev1.HttpHeader{Name: "x-raw", Value: "a"}) ||
		!proto.Equal(h[1], &execwirev1.HttpHeader{Name: "x-raw", Value: "\ufffd", RawValue: []byte("\xfe")}) {
		t.Errorf("the headers are %v", h)
	}
}

func TestFetch_RedirectPolicy(t *testing.T) {
	url := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to", http.StatusFound)
		}
	})
	for policy, status := range map[execwirev1.RedirectPolicy]uint32{
		execwirev1.RedirectPolicy_REDIRECT_POLICY_UNSPECIFIED: 200, execwirev1.RedirectPolicy_REDIRECT_POLICY_FOLLOW: 200, execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP: 302,
	} {
		req := getOf(url + "/from")
		req.RedirectPolicy = policy
		if head, _, err := newFixture(t).fetch(req); err != nil || head.GetStatus() != status {
			t.Errorf("%v: %v, %v", policy, head, err)
		}
	}
}

func TestFetch_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	header := func(h *execwirev1.HttpHeader) *execwirev1.FetchRequest {
		return &execwirev1.FetchRequest{Method: "GET", Url: "http://127.0.0.1:1/", Headers: []*execwirev1.HttpHeader{h}}
	}
	for field, req := range map[string]*execwirev1.FetchRequest{
		"method":               {Url: "http://127.0.0.1:1/"},
		"url":                  getOf("ftp://x/"),
		"timeout":              {Method: "GET", Url: "http://127.0.0.1:1/", Timeout: seconds(-1)},
		"redirect_policy":      {Method: "GET", Url: "http://127.0.0.1:1/", RedirectPolicy: 9},
		"headers[0].name":      header(&execwirev1.HttpHeader{Name: "a b", Value: "x"}),
		"headers[0].value":     header(&execwirev1.HttpHeader{Name: "a", Value: "x\r\ny: z"}),
		"headers[0].raw_value": header(&execwirev1.HttpHeader{Name: "a", Value: "x", RawValue: []byte("y")}),
	} {
		_, _, err := f.fetch(req)
		expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(err); got != field {
			t.Errorf("the violated field is %q, want %q", got, field)
		}
	}
}

func TestFetch_Errors_HaveReason(t *testing.T) {
	f := newFixture(t)
	url := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "only this")
		case "/head":
			w.Header().Set("X", strings.Repeat("x", 20<<10))
		case "/late":
			<-r.Context().Done()
		}
	})
	late := getOf(url + "/late")
	late.Timeout = durationpb.New(20 * time.Millisecond)
	for _, test := range []struct {
		req      *execwirev1.FetchRequest
		code     codes.Code
		reason   execwirev1.ErrorReason
		metadata string
	}{
		{getOf("http://169.254.169.254/latest"), codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED, "address=169.254.169.254"},
		{getOf("http://127.0.0.1:1/x"), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED, "errno=ECONNREFUSED"},
		{getOf("http://127.0.0.1:1/x"), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED, "url=http://127.0.0.1:1/x"},
		{getOf(url + "/cut"), codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, "cause=unexpected EOF"},
		{getOf(url + "/head"), codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE, "limit_bytes=16384"},
		{late, codes.DeadlineExceeded, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT, "url=" + url + "/late"},
	} {
		_, _, err := f.fetch(test.req)
		expectFailure(t, err, test.code, test.reason)
		key, want, _ := strings.Cut(test.metadata, "=")
		if got := errorinfo.Of(err).GetMetadata()[key]; got != want {
			t.Errorf("%v: %s is %q, want %q", test.reason, key, got, want)
		}
	}
}

func TestFetch_Disabled_IsUnimplemented(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.http = nil })
	_, _, err := f.fetch(getOf("http://127.0.0.1:1/"))
	expectFailure(t, err, codes.Unimplemented, execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED)
	for _, f := range []*fixture{f, newFixture(t)} {
		described, err := f.environ.GetEnvironment(f.ctx, &execwirev1.GetEnvironmentRequest{})
		_, _, failed := f.fetch(getOf("http://127.0.0.1:1/"))
		isOff := status.Code(failed) == codes.Unimplemented
		if err != nil || slices.Contains(described.GetFeatures(), execwirev1.Feature_FEATURE_HTTP) == isOff {
			t.Errorf("disabled %v: %v, %v", isOff, described.GetFeatures(), err)
		}
	}
}

// newEndlessUpstream starts an HTTP server whose response never ends. It counts the bytes written,
// and closes gone when the connection ends.
func newEndlessUpstream(t *testing.T) (url string, taken *atomic.Int64, gone chan struct{}) {
	taken, gone = new(atomic.Int64), make(chan struct{})
	var once sync.Once
	return newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		defer once.Do(func() { close(gone) })
		for piece := make([]byte, 64<<10); ; {
			n, err := w.Write(piece)
			taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}), taken, gone
}

func TestFetch_ClientNotReading_BlocksUpstream(t *testing.T) {
	f := newFixture(t)
	url, taken, gone := newEndlessUpstream(t)
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	stream, err := f.http.Fetch(ctx, getOf(url))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	const much = 32 << 20 // more than all buffers in between
	before := int64(0)
	for seen, still := int64(-1), 0; still < 5; time.Sleep(20 * time.Millisecond) {
		now := taken.Load()
		if now > much {
			t.Fatalf("the upstream server sent %d bytes to a client that does not read", now)
		}
		if still++; now != seen {
			seen, still = now, 0
		}
		before = now
	}
	for taken.Load() < before+1<<20 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	cancel(errors.New("enough"))
	select {
	case <-gone:
	case <-time.After(testTimeout):
		t.Fatal("the connection outlives the call")
	}
}

func TestFetch_LimitPerPrincipal(t *testing.T) {
	var caller atomic.Value
	caller.Store(auth.Principal{Name: "ann"})
	f := newFixture(t, func(s *settings) { s.principal = func() auth.Principal { return caller.Load().(auth.Principal) } })
	url, _, _ := newEndlessUpstream(t)
	var ends []context.CancelCauseFunc
	for range 3 {
		ctx, cancel := context.WithCancelCause(f.ctx)
		defer cancel(nil)
		ends = append(ends, cancel)
		stream, err := f.http.Fetch(ctx, getOf(url))
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := f.fetch(getOf("http://127.0.0.1:1/"))
	expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_HTTP_REQUESTS)
	caller.Store(auth.Principal{Name: "bob"})
	_, _, err = f.fetch(getOf("http://127.0.0.1:1/"))
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED)
	caller.Store(auth.Principal{Name: "ann"})
	ends[0](nil)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, _, err = f.fetch(getOf("http://127.0.0.1:1/")); status.Code(err) != codes.ResourceExhausted {
			break
		}
		if time.Since(begun) > testTimeout {
			t.Fatal("a fetch that has ended still counts")
		}
	}
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED)
}

func TestFetch_Log_OmitsURL(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, func(s *settings) {
		s.logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_, _, err := f.fetch(getOf("http://secret-user:secret-password@127.0.0.1:1/secret-path?secret"))
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED)
	if !strings.Contains(log.String(), "HTTP_FAILED") || strings.Contains(log.String(), "secret") {
		t.Errorf("the log is %s", log.String())
	}
	if text := status.Convert(err).Message(); strings.Contains(text, "secret-password") || strings.Contains(text, "secret-user") {
		t.Errorf("the error is %s", text)
	}
}
