package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A request whose response is streamed for long was sent long ago.
func TestAStreamedBodyKeepsNothingOfItsRequest(t *testing.T) {
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
		cl, _ := newCore(t, func(s *coreSettings) { s.wire = wire }).attach("")
		ask := func(id string) {
			cl.must("http/request", getOf(web.URL, "method", "POST", "streamResponse", true, "requestId", id, "bodyBase64", counting(size)))
		}
		ask("first") // which makes what is made once
		before := memory()
		for i := range requests {
			ask(fmt.Sprint(i))
		}
		// What a pool or a goroutine that ends just now still has goes with a later
		// collection; what a stream keeps never does.
		kept := memory() - before
		for deadline := time.Now().Add(10 * time.Second); kept > requests*size/2 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			kept = memory() - before
		}
		if kept > requests*size/2 {
			t.Errorf("over a wire %v, %d streams keep %d bytes", wire, requests, kept)
		}
		cl.cut()
		_ = cl.ended()
	}
}
