package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/wsconn"
)

// cutBody is a response whose body comes in pieces of one size.
type cutBody struct {
	grpc.ClientStream
	left, size int
}

func (p *cutBody) Recv() (*execwirev1.FetchResponse, error) {
	if p.left == 0 {
		return nil, io.EOF
	}
	p.left--
	return &execwirev1.FetchResponse{Message: &execwirev1.FetchResponse_Data{Data: make([]byte, p.size)}}, nil
}

// However a server elsewhere cuts a body, it takes about its bytes.
func TestABodyInSmallPiecesTakesNoMoreThanItsBytes(t *testing.T) {
	const size = 256 << 10
	for _, of := range []int{1, 7, 1 << 10, largePiece - 1, largePiece, largePiece + 1, 64 << 10} {
		places := &httpPlaces{}
		places.limits(Config{HTTPBuffered: 2 * size}, new(wsconn.Share))
		response := &httpResponse{place: &httpPlace{of: places}, stream: &cutBody{left: size / of, size: of}}
		if failed := response.gather(maxFileBytes); failed != nil {
			t.Fatal(failed)
		}
		came, takes := 0, 0
		for _, piece := range response.body {
			came += len(piece)
			takes += cap(piece) + 24 // and the slice
		}
		if want := size / of * of; came != want || response.size != want || takes > 2*want {
			t.Errorf("%d bytes in pieces of %d became %d, and take %d", want, of, came, takes)
		}
	}
}

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
