package httpclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// silent sends some bytes, and then nothing until the client has disconnected,
// which closes gone.
func silent(t *testing.T, text string) (u *upstream, gone chan struct{}) {
	gone = make(chan struct{})
	return newUpstream(t, func(conn net.Conn, _ string, _ []byte) {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	}), gone
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(hang):
		t.Fatalf("%s does not happen", what)
	}
}

const partOfABody = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"

func TestTimeout_CoversBody(t *testing.T) {
	none, short := time.Duration(0), 50*time.Millisecond
	for _, test := range []struct {
		says    string
		timeout *time.Duration
	}{
		{"", &short}, {"HTTP/1.1 200", &short}, {partOfABody, &short}, {"", &none},
	} {
		u, _ := silent(t, test.says)
		_, _, err := get(t, newClient(), &Request{URL: u.url("/"), Timeout: test.timeout})
		if !isKind(err, TimedOut) {
			t.Errorf("after %q: %v", test.says, err)
		}
	}
	long := hang
	if _, body := mustGet(t, newClient(), &Request{URL: newUpstream(t, say(ok)).url("/"), Timeout: &long}); body != "ok" {
		t.Errorf("in time came %q", body)
	}
}

func TestDo_ContextEnds_Returns(t *testing.T) {
	errLeft := errors.New("left")
	for _, says := range []string{"", "HTTP/1.1 200", partOfABody} {
		u, gone := silent(t, says)
		ctx, cancel := context.WithCancelCause(context.Background())
		failed := make(chan error, 1)
		c := newClient()
		go func() {
			response, err := c.Do(ctx, &Request{Method: "GET", URL: u.url("/")})
			if err == nil {
				_, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			failed <- err
		}()
		for len(u.seen()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(errLeft)
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("after %q: %v", says, err)
		}
		await(t, "the end of the connection", gone)
		if n := c.active.Held(""); n != 0 {
			t.Errorf("after %q, %d requests are under way", says, n)
		}
	}
}

func TestBody_Close_EndsConnection(t *testing.T) {
	u, gone := silent(t, partOfABody)
	response, err := newClient().Do(bounded(t), &Request{Method: "GET", URL: u.url("/")})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := response.Body.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	await(t, "the end of the connection", gone)
}

func TestDo_PerOwnerLimit(t *testing.T) {
	c := newClient(func(o *Options) { o.PerOwner = 2 })
	var open []*Response
	for range 2 {
		u, _ := silent(t, partOfABody)
		response, err := c.Do(bounded(t), &Request{Owner: "ann", Method: "GET", URL: u.url("/")})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, response)
	}
	u := newUpstream(t, say(ok))
	_, _, err := get(t, c, &Request{Owner: "ann", URL: u.url("/")})
	if own, _ := err.(*Error); own == nil || own.Kind != TooManyRequests || own.Limit != 2 {
		t.Errorf("a third one: %v", err)
	}
	mustGet(t, c, &Request{Owner: "bob", URL: u.url("/")})
	_ = open[0].Body.Close()
	mustGet(t, c, &Request{Owner: "ann", URL: u.url("/")})
	if _, _, err := get(t, c, &Request{Owner: "ann", URL: "http://0.0.0.0/"}); !isKind(err, AddressRefused) {
		t.Errorf("one that is refused: %v", err)
	}
	mustGet(t, c, &Request{Owner: "ann", URL: u.url("/")})
	_ = open[1].Body.Close()
}

func TestError_Messages(t *testing.T) {
	seen := map[string]Kind{}
	for kind := Kind(1); kind < KindEnd; kind++ {
		err := &Error{Kind: kind, Field: "url", URL: "http://h/", Address: netip.MustParseAddr("0.0.0.0"), Limit: 3, Err: io.ErrUnexpectedEOF}
		text := err.Error()
		if other, twice := seen[text]; twice || text == "" {
			t.Errorf("%v and %v both say %q", kind, other, text)
		}
		seen[text] = kind
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v hides its cause", kind)
		}
	}
}
