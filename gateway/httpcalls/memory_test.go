package httpcalls

import (
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/wsconn"
)

// cutBody is a response whose body comes in chunks of one size.
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

// A body needs memory in proportion to its bytes, whatever the size of its chunks.
func TestReadBody_SmallChunks_MemoryIsBounded(t *testing.T) {
	const size = 256 << 10
	for _, of := range []int{1, 7, 1 << 10, largePiece - 1, largePiece, largePiece + 1, 64 << 10} {
		service := New(nil, nil, Config{Buffered: 2 * size, Share: new(wsconn.Share)})
		response := &response{slot: &slot{service: service}, stream: &cutBody{left: size / of, size: of}}
		if failed := response.readBody(4 * size); failed != nil {
			t.Fatal(failed)
		}
		received, allocated := 0, 0
		for _, chunk := range response.body {
			received += len(chunk)
			allocated += cap(chunk) + 24 // and the slice
		}
		if want := size / of * of; received != want || response.size != want || allocated > 2*want {
			t.Errorf("%d bytes in chunks of %d became %d bytes, which use %d", want, of, received, allocated)
		}
	}
}

// The error names the setting and the retry delay.
func TestResponseTooLarge_NamesTheSettingAndWhenToRetry(t *testing.T) {
	const setting = "http_buffered_bytes_per_connection"
	refused := responseTooLarge(7)
	data := refused.Data.(map[string]any)
	if data["setting"] != setting || !strings.Contains(refused.Message, setting) || data["retryAfterMs"] != int64(1000) {
		t.Errorf("%+v", refused)
	}
}
