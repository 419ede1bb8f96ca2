package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	ossignal "os/signal"
	"strings"
	"syscall"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

func init() { testproc.Register("bench-http", serveFiles) }

// serveFiles SOCKET is the floor of files over HTTP: net/http, which sends them by sendfile.
func serveFiles(args []string) int {
	signals := make(chan os.Signal, 2)
	ossignal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	for network, address := range map[string]string{"unix": args[0], "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { _ = http.Serve(l, http.FileServer(http.Dir("/"))) }()
		fmt.Printf("%s://%s\n", network, l.Addr())
	}
	<-signals
	return 0
}

// get returns what reads a file over HTTP to its end, with a connection that is kept, and checks
// its size.
func (b *bench) get(p *harness.Peer, transport, path string, size int64) func() {
	b.Helper()
	network, address, _ := strings.Cut(p.URLs[transport], "://")
	keeping := &http.Transport{ReadBufferSize: 64 << 10, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	b.Cleanup(keeping.CloseIdleConnections)
	client, buffer := &http.Client{Transport: keeping}, make([]byte, 256<<10)
	return func() {
		b.Helper()
		response, err := client.Get("http://127.0.0.1" + path)
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

func measureReadFileHTTP(b *bench) []line {
	argv := testproc.Argv("bench-http", b.TempDir()+"/s")
	server, bare := b.startServer(), harness.StartPeer(b, nil, argv[0], argv[1:]...)
	var lines []line
	for _, transport := range harness.PeerTransports {
		for _, size := range b.sizes.fileBytes {
			path := b.zeroFile(size)
			reference, get := b.get(bare, transport, path, size), b.get(server, transport, "/v1/files"+path, size)
			reference()
			grown := growth(server, get)
			var floor, ours transfers
			for range b.sizes.fileRounds {
				floor.addBytes(bare, size, reference)
				ours.addBytes(server, size, get)
			}
			b.raw("%s, net/http, file of %s: %.0f MiB/s, server CPU %.2f s/GiB", transport, harness.ShowMiB(size), floor.rate, floor.cpu)
			b.raw("%s, GET of %s: %.0f MiB/s, server CPU %.2f s/GiB, %s more memory for the first", transport, harness.ShowMiB(size), ours.rate, ours.cpu, harness.ShowMiB(grown))
			lines = append(lines, atLeast(fmt.Sprintf("read %s over HTTP, %s", harness.ShowMiB(size), transport), floor.rate.Median(), ours.rate.Median(), 0.9, "MiB/s"),
				within("memory for it, "+transport, grown, readGrowth, harness.ShowMiB))
		}
	}
	return lines
}
