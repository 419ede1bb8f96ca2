package gateway

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/internal/jsonrpc"
	"github.com/execwire/execwire/internal/testrace"
)

// limited limits the messages of the transport.
func limited(bytes int) func(*pipe, *Config) {
	return func(p *pipe, _ *Config) { p.limit, p.capacity = bytes, 1<<20 }
}

// What exceeds the message limit of the transport fails before any of it is
// sent; what fits is sent.
func TestReadFile_MessageLimitOfTransport(t *testing.T) {
	testrace.WithoutRace(t)
	const limit = 4 << 20
	content := (limit - aroundContent) / 4 * 3
	whole := func(s *serverSettings) { s.limits.ReadFileBytes = limit }
	for _, reads := range []func(*serverSettings){whole, withSmallFiles} { // in one message from the server, and streamed
		cl, _ := newTestServer(t, reads).attach("", limited(limit))
		path := filepath.Join(t.TempDir(), "f")
		do(t, writeMany(path, int64(content)))
		var got struct{ DataBase64 []byte }
		if cl.decode(cl.must("fs/readFile", map[string]any{"path": path}), &got); len(got.DataBase64) != content {
			t.Errorf("got %d bytes of %d", len(got.DataBase64), content)
		}
		do(t, writeMany(path, int64(content)+1))
		cl.refused("fs/readFile", map[string]any{"path": path}, jsonrpc.CodeInvalidRequest, fmt.Sprintf("limit is %d bytes; read it in blocks with fs/open", content))
		cl.must("fs/getMetadata", map[string]any{"path": path})
	}
}

func TestHTTPRequest_MessageLimitOfTransport(t *testing.T) {
	const limit = 1 << 20
	content := (limit - aroundContent) / 4 * 3
	url := web(t)
	cl, _ := newTestServer(t).attach("", limited(limit))
	var got struct{ BodyBase64 []byte }
	if cl.decode(cl.must("http/request", getOf(fmt.Sprintf("%s/bytes/%d", url, content))), &got); len(got.BodyBase64) != content {
		t.Errorf("got %d bytes of %d", len(got.BodyBase64), content)
	}
	cl.refused("http/request", getOf(fmt.Sprintf("%s/bytes/%d", url, content+1)), jsonrpc.CodeLimitReached, fmt.Sprintf("limit is %d bytes here; ask for it with streamResponse", content))
}
