package conformance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// recordedWeb is the HTTP server used in the recording of http/request. It closes every
// connection after a response without announcing it.
type recordedWeb struct {
	listener net.Listener
	zipped   []byte // the response of /gzip, with the time of the recording
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	over  bool       // guarded by mu
}

func newRecordedWeb(t testing.TB, zipped []byte) *recordedWeb {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &recordedWeb{listener: listener, zipped: zipped}
	w.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.serving.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.mu.Lock()
		w.over = true
		for _, conn := range w.conns {
			_ = conn.Close()
		}
		w.mu.Unlock()
		w.serving.Wait()
	})
	return w
}

// port is the value of ${UP} in transcripts.
func (w *recordedWeb) port() string {
	return strconv.Itoa(w.listener.Addr().(*net.TCPAddr).Port)
}

func (w *recordedWeb) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	w.mu.Lock()
	w.conns = append(w.conns, conn)
	over := w.over
	w.mu.Unlock()
	if over {
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	w.answer(conn, request.URL.Path, body)
}

// answer sends the responses of the recorder's server. Where that slept, this one waits until
// the client has disconnected.
func (w *recordedWeb) answer(conn net.Conn, path string, body []byte) {
	respond := func(status, extra string, body []byte) {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nX-A: 1\r\nX-A: 2\r\nContent-Type: text/plain\r\n%sContent-Length: %d\r\n\r\n%s", status, extra, len(body), body)
	}
	switch path {
	case "/ok":
		respond("200 OK", "", []byte("hello"))
	case "/404":
		respond("404 Not Found", "", []byte("nope"))
	case "/redir":
		respond("302 Found", "Location: /ok\r\n", nil)
	case "/loop":
		respond("302 Found", "Location: /loop\r\n", nil)
	case "/204":
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nX-A: 1\r\nX-A: 2\r\nContent-Type: text/plain\r\n\r\n")
	case "/gzip":
		respond("200 OK", "Content-Encoding: gzip\r\n", w.zipped)
	case "/cut":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
	case "/echo":
		respond("200 OK", "", append([]byte("echo "), body...))
	case "/slow":
		_, _ = io.Copy(io.Discard, conn)
	case "/slowbody":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		_, _ = io.Copy(io.Discard, conn)
	case "/stream":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range 4 {
			_, _ = fmt.Fprintf(conn, "6\r\npart%d\n\r\n", i)
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n")
	case "/big":
		respond("200 OK", "", bytes.Repeat([]byte("z"), 3<<20))
	case "/endless":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for pace := time.NewTicker(10 * time.Millisecond); ; <-pace.C {
			if _, err := io.WriteString(conn, "2\r\nx\n\r\n"); err != nil {
				pace.Stop()
				return
			}
		}
	}
}

// prepareWeb starts the server for the conversation.
func (r *replay) prepareWeb() {
	for _, m := range r.talk {
		if !strings.Contains(string(r.events[m.at].Value), "/gzip") {
			continue
		}
		var reply struct{ Result struct{ BodyBase64 []byte } }
		r.must(json.Unmarshal(r.events[m.replyAt].Value, &reply))
		r.web = newRecordedWeb(r, reply.Result.BodyBase64)
	}
}

// awaitBodies waits until every body that ended is complete, and a part of the one that did
// not has arrived.
func (r *replay) awaitBodies() {
	r.Helper()
	want := bodiesOf(r.responsesBefore(len(r.events)))
	r.conns["c1"].Until("the bodies have come", func(frames []harness.RPCFrame) bool {
		var said []map[string]any
		for _, f := range frames {
			if value, ok := harness.DecodeAny(f.Data).(map[string]any); ok {
				said = append(said, value)
			}
		}
		have := bodiesOf(said)
		for id, body := range want {
			if have[id] == nil || have[id].ended != body.ended {
				return false
			}
		}
		return len(want) > 0
	})
}

// responsesBefore returns the responses of the reference before an event.
func (r *replay) responsesBefore(at int) (said []map[string]any) {
	for _, e := range r.events[:at] {
		if value, ok := harness.DecodeAny(e.Value).(map[string]any); ok && e.Direction == "<" {
			said = append(said, value)
		}
	}
	return said
}

// streamedBody is a body received in notifications.
type streamedBody struct {
	data  bytes.Buffer
	last  json.Number // seq
	ended string      // how, as JSON; empty if it has not
	wrong string      // what is wrong with the notifications
}

// bodiesOf returns the streamed bodies by request id.
func bodiesOf(said []map[string]any) map[string]*streamedBody {
	bodies := map[string]*streamedBody{}
	for _, message := range said {
		params, _ := message["params"].(map[string]any)
		id, _ := params["requestId"].(string)
		if message["method"] != "http/request/bodyDelta" {
			continue
		}
		if bodies[id] == nil {
			bodies[id] = &streamedBody{last: "0"}
		}
		b := bodies[id]
		seq, _ := params["seq"].(json.Number)
		if before, _ := b.last.Int64(); seq.String() != fmt.Sprint(before+1) || b.ended != "" {
			b.wrong = fmt.Sprintf("seq %v comes after %v, ended %s", seq, b.last, b.ended)
		}
		b.last = seq
		text, _ := params["deltaBase64"].(string)
		b.data.Write(restoreZ(text))
		if params["done"] == true {
			b.ended = "with error " + harness.MustJSON(params["error"])
		}
	}
	return bodies
}

// restoreZ decodes base64, of which a transcript may have cut that of the letter z.
func restoreZ(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		return data
	}
	groups := cutText.FindStringSubmatch(`"` + text + `"`)
	if groups == nil {
		panic("this is no base64: " + text)
	}
	chars, _ := strconv.Atoi(groups[2])
	for less := range 3 {
		data := bytes.Repeat([]byte("z"), chars/4*3-less)
		sum := sha256.Sum256([]byte(base64.StdEncoding.EncodeToString(data)))
		if strings.Contains(text, "sha256 "+hex.EncodeToString(sum[:])[:16]+">>") {
			return data
		}
	}
	panic("nobody knows what was cut from " + text)
}

// differingBodies describes how the streamed bodies differ. A body without an end may have more
// or less data.
func differingBodies(reference, ours []map[string]any) string {
	want, got := bodiesOf(reference), bodiesOf(ours)
	var how strings.Builder
	for id := range merged(want, got) {
		theirs, own := want[id], got[id]
		switch {
		case theirs == nil || own == nil:
			fmt.Fprintf(&how, "\n  the body of %s: reference %v, ours %v", id, theirs != nil, own != nil)
		case theirs.ended != own.ended || own.wrong != "":
			fmt.Fprintf(&how, "\n  the body of %s ends %s, ours %s; %s", id, theirs.ended, own.ended, own.wrong)
		case theirs.ended != "" && !bytes.Equal(theirs.data.Bytes(), own.data.Bytes()):
			fmt.Fprintf(&how, "\n  the body of %s: reference %.100q, ours %.100q", id, theirs.data.Bytes(), own.data.Bytes())
		}
	}
	return how.String()
}
