package bench

import (
	"io"
	"net/http"
	"strings"

	"github.com/execwire/execwire/integration/harness"
)

// getFile returns what reads a file over HTTP to its end, with a connection that is kept, and
// checks its size.
func (b *bench) getFile(url, path string, size int64) func() {
	b.Helper()
	_, address, _ := strings.Cut(url, "://")
	keeping := &http.Transport{ReadBufferSize: 64 << 10}
	b.Cleanup(keeping.CloseIdleConnections)
	client, buffer := &http.Client{Transport: keeping}, make([]byte, 256<<10)
	return func() {
		b.Helper()
		response, err := client.Get("http://" + address + path)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		received, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, response.Body, buffer)
		if err != nil || response.StatusCode != http.StatusOK || received != size {
			b.Fatalf("%s: %s, %d bytes of %d, %v", path, response.Status, received, size, err)
		}
	}
}

// measureReadFileHTTP compares a GET with the file server of net/http, which uses sendfile.
func measureReadFileHTTP(b *bench) []line {
	server, floor := b.startServer(), b.startFloor()
	size := b.sizes.fileBytes[len(b.sizes.fileBytes)-1]
	path := b.zeroFile(size)
	reference := b.getFile(floor.URLs[harness.JSONRPC], "/files"+path, size)
	get := b.getFile(server.URLs["TCP"], "/v1/files"+path, size)
	reference()
	grown := growth(server, get)
	got := b.carry(size, transfer{"net/http", floor, reference}, transfer{"GET", server, get})
	return readLines("read "+harness.ShowMiB(size)+", HTTP", got, grown)
}
