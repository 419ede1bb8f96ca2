package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/testrace"
)

// While the response of a request is streamed, its request is freed.
func TestHTTPStream_FreesRequest(t *testing.T) {
	testrace.MeasuresMemory(t)
	const requests, size = 8, 1 << 20
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	for _, wire := range []bool{false, true} {
		cl, _ := newTestServer(t, func(s *serverSettings) { s.wire = wire }).attach("")
		ask := func(id string) {
			cl.must("http/request", getOf(web.URL, "method", "POST", "streamResponse", true, "requestId", id, "bodyBase64", numberedBytes(size)))
		}
		ask("first") // allocates what is allocated once
		before := memory()
		for i := range requests {
			ask(fmt.Sprint(i))
		}
		// What a pool or an ending goroutine still references is freed by a later
		// collection; what a stream references is not.
		kept := memory() - before
		for deadline := time.Now().Add(10 * time.Second); kept > requests*size/2 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			kept = memory() - before
		}
		if kept > requests*size/2 {
			t.Errorf("remote %v: %d streams keep %d bytes", wire, requests, kept)
		}
		cl.cut()
		_ = cl.ended()
	}
}
