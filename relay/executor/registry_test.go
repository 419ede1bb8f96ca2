package executor_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testcert"
	"github.com/execwire/execwire/internal/testport"
	"github.com/execwire/execwire/relay/executor"
)

// answer returns a handler with a status, body and headers.
func answer(status int, body string, headers ...string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}
}

// Responses that end an executor that has never registered, and the error. Those
// that are retried then are also retried later.
var refusals = []struct {
	name   string
	answer func(int, http.ResponseWriter, *http.Request)
	text   string
	final  bool // at the first registration
	later  bool // at a later registration
}{
	{"401", answer(401, `{"error":{"message":"bad token"}}`), "executor registry authentication error: executor registry authentication failed (401 Unauthorized): bad token", true, true},
	{"403 without a body", answer(403, ``), "executor registry authentication failed (403 Forbidden): empty error body", true, true},
	{"404", answer(404, `not here`), "executor registry request failed (404 Not Found): not here: there is no registry at the URL of --remote", true, false},
	{"400 with a code", answer(400, `{"error":{"code":"boom","message":"broken"}}`), "executor registry request failed (400 Bad Request, boom): broken", true, false},
	{"500 with a code", answer(500, `{"error":{"code":"boom","message":"broken"}}`), "executor registry request failed (500 Internal Server Error, boom): broken", false, false},
	{"503 of a proxy", answer(503, "<html>\r\n\x1b]0;title\a"), "executor registry request failed (503 Service Unavailable): <html>", false, false},
	{"408", answer(408, ``), "(408 Request Timeout)", false, false},
	{"429", answer(429, ``), "(429 Too Many Requests)", false, false},
	{"a long message", answer(500, strings.Repeat("ä", 5000)), strings.Repeat("ä", 4096) + "…", false, false},
	{"a huge error", answer(500, strings.Repeat("x", 2<<20)), strings.Repeat("x", 4096) + "…", false, false},
	{"an echo", answer(500, `{"error":{"code":"t0psecret","message":"you sent Bearer t0psecret"}}`), "Error, …): you sent Bearer …", false, false},
	{"a redirect", answer(307, ``, "Location", "/elsewhere?t0psecret"), "(307 Temporary Redirect): empty error body: redirects are not followed with credentials", true, false},
	{"no JSON", answer(200, `welcome`), "error decoding response body of the executor registry: not a JSON object", true, false},
	{"null", answer(200, `null`), "not a JSON object", true, false},
	{"a huge answer", answer(200, `"`+strings.Repeat("x", 1<<20)+`"`), "larger than 1048576 bytes", true, false},
	{"no id", answer(200, `{"url":"wss://h/"}`), "no valid executor_id", true, false},
	{"a number for an id", answer(200, `{"executor_id":1,"url":"wss://h/"}`), "no valid executor_id", true, false},
	{"an id that cannot be shown", answer(200, `{"executor_id":"\u001b[31m","url":"wss://h/"}`), "no valid executor_id", true, false},
	{"no url", answer(200, `{"executor_id":"x"}`), "no url", true, false},
	{"a url in another case", answer(200, `{"executor_id":"x","URL":"wss://h/"}`), "no url", true, false},
	{"a long url", answer(200, `{"executor_id":"x","url":"wss://h/`+strings.Repeat("x", 8<<10)+`"}`), "no url of at most 8192 bytes", true, false},
	{"a url that is none", answer(200, `{"executor_id":"x","url":"wss://h:t0psecret/"}`), "url is not a valid URL", true, false},
	{"https", answer(200, `{"executor_id":"x","url":"https://h/"}`), "url is not a URL of wss:// or ws://", true, false},
	{"no host", answer(200, `{"executor_id":"x","url":"wss:///t0psecret"}`), "url has no host", true, false},
	{"a user", answer(200, `{"executor_id":"x","url":"wss://u:t0psecret@h/"}`), "url has a user or a fragment", true, false},
	{"plain text to another host", answer(200, `{"executor_id":"x","url":"ws://192.0.2.1/?t0psecret"}`), "url is ws:// to another host", true, false},
}

func TestRegistry_ErrorResponses(t *testing.T) {
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			h.register = tc.answer
			r := h.start(t, withToken)
			var err error
			if tc.final {
				err = r.wait()
			} else {
				err = r.next(retrying).err
			}
			expectText(t, err, tc.text)
			if registrations, _ := h.seen(); tc.final && len(registrations) != 1 {
				t.Errorf("there were %d requests", len(registrations))
			}
			if strings.Contains(r.logs.String(), "t0psecret") {
				t.Errorf("the log has a secret: %s", r.logs)
			}
		})
	}
}

// A registration that was accepted once may be accepted again.
func TestRegistry_ErrorAfterRegistration_IsRetried(t *testing.T) {
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			h := newHub(t)
			h.upgrade = refuseUpgrade
			h.register = func(n int, w http.ResponseWriter, r *http.Request) {
				if n == 1 || n == 3 {
					h.admit(w, "machine-1")
					return
				}
				tc.answer(n, w, r)
			}
			r := h.start(t, withToken)
			r.next(registered)
			r.next(retrying)
			if tc.later {
				expectText(t, r.wait(), tc.text)
				return
			}
			expectText(t, r.next(retrying).err, tc.text)
			r.next(registered)
		})
	}
}

func expectText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the error is %.5000v, want %q", err, want)
	}
	if strings.Contains(err.Error(), "t0psecret") || strings.ContainsAny(err.Error(), "\x1b\a\r\n") {
		t.Errorf("the error is %q", err)
	}
}

// Redirects are not followed, so that their target receives no credentials.
func TestRegistry_Redirect_IsNotFollowed(t *testing.T) {
	elsewhere, h := newHub(t), newHub(t)
	h.register = func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusPermanentRedirect)
	}
	status, ok := errors.AsType[*executor.StatusError](h.start(t, withToken).wait())
	if !ok || status.Status != http.StatusPermanentRedirect {
		t.Errorf("%v, want a StatusError", status)
	}
	if registrations, _ := elsewhere.seen(); len(registrations) != 0 {
		t.Error("the redirect was followed")
	}
}

func TestRegistry_RetryAfter_IsHonored(t *testing.T) {
	for name, tc := range map[string]struct {
		header   string
		low, top time.Duration
	}{
		"seconds":          {"7", 7 * time.Second, 7 * time.Second},
		"a date":           {time.Now().Add(2 * time.Minute).UTC().Format(http.TimeFormat), time.Second, 2 * time.Minute},
		"a date long ago":  {time.Unix(0, 0).UTC().Format(http.TimeFormat), 0, time.Millisecond},
		"longer than good": {"86400", 5 * time.Minute, 5 * time.Minute},
		"nonsense":         {"soon", 0, time.Millisecond},
		"negative":         {"-5", 0, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			h.register = answer(http.StatusTooManyRequests, "", "Retry-After", tc.header)
			e := h.start(t).next(retrying)
			if e.wait < tc.low || e.wait > tc.top+1 {
				t.Errorf("it waits %v, want %v to %v", e.wait, tc.low, tc.top)
			}
		})
	}
}

func TestRegistry_DroppedConnection_IsRetried(t *testing.T) {
	h := newHub(t)
	h.register = func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 1:
			panic(http.ErrAbortHandler)
		case 2: // in the middle of the response
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"executor_id":`))
			panic(http.ErrAbortHandler)
		default:
			h.admit(w, "machine-1")
		}
	}
	r := h.start(t)
	for range 2 {
		if e := r.next(retrying); !isRequestError(e.err) {
			t.Errorf("%v, want a RequestError", e.err)
		}
	}
	r.next(registered)
}

func isRequestError(err error) bool {
	_, is := errors.AsType[*executor.RequestError](err)
	return is
}

func TestRegistry_Slow_TimesOut(t *testing.T) {
	h := newHub(t)
	h.register = func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			_, _ = w.Write([]byte(`{"executor_id":`))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}
	r := h.start(t, func(o *executor.Options) { o.Timeout = 20 * time.Millisecond })
	for range 2 {
		e := r.next(retrying)
		if !isRequestError(e.err) || !strings.Contains(e.err.Error(), "timed out after 20ms") {
			t.Errorf("%v, want a RequestError about time", e.err)
		}
	}
}

func TestRegistry_Unreachable_IsRetried(t *testing.T) {
	h := &hub{Server: &httptest.Server{URL: fmt.Sprintf("http://127.0.0.1:%d", testport.Reserve(t))}}
	r := h.start(t)
	if e := r.next(retrying); !isRequestError(e.err) || !strings.Contains(e.err.Error(), "refused") {
		t.Errorf("%v, want a RequestError", e.err)
	}
}

func TestRegistry_OtherID_IsAccepted(t *testing.T) {
	h := newHub(t)
	h.register = func(_ int, w http.ResponseWriter, _ *http.Request) { h.admit(w, "other/1") }
	r := h.start(t)
	if e := r.next(registered); e.executorID != "other/1" {
		t.Errorf("registered as %q", e.executorID)
	}
	r.next(connected)
}

func TestTLS(t *testing.T) {
	h := newUnstartedHub(t)
	h.StartTLS()
	h.register = func(_ int, w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"executor_id":"x","url":"wss%s/rendezvous?%s"}`, strings.TrimPrefix(h.URL, "https"), query)
	}
	r := h.start(t, withToken)
	r.next(registered)
	r.next(connected)

	err := h.start(t, withToken, func(o *executor.Options) {
		o.TLS = &tls.Config{RootCAs: testcert.NewAuthority(t).Pool()}
	}).wait()
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Errorf("with an authority that is not trusted: %v", err)
	}
}
