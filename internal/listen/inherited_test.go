package listen_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/listen"
)

// Each socket that the program was started with is that of one listener.
func TestInherited(t *testing.T) {
	path := socketPath(t)
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		socket, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := socket.(*net.UnixListener); ok {
			l.SetUnlinkOnClose(false) // as that of a descriptor
		}
		sockets := []net.Listener{socket}
		url := mustParse(t, map[string]string{"tcp": "grpc://", "unix": "unix://"}[network]+socket.Addr().String())
		other := mustListen(t, "grpc://127.0.0.1:0")
		l, err := listen.Listen(t.Context(), url, listen.Options{Inherited: sockets})
		if err != nil {
			t.Fatal(err)
		}
		accepting := dispatch(l)
		t.Cleanup(func() { _ = accepting.Close() })
		roundTrip(t, accepting)

		if err := listen.CheckInherited(sockets, []listen.Listener{other, l}); err != nil {
			t.Error(err)
		}
		for kind, opened := range map[listen.Kind][]listen.Listener{listen.KindSystem: {other}, listen.KindInUse: {l, other, l}} {
			var typed *listen.Error
			if err := listen.CheckInherited(sockets, opened); !errors.As(err, &typed) || typed.Kind != kind || !strings.Contains(err.Error(), socket.Addr().String()) {
				t.Errorf("%d listeners, %s: %v, want an Error of kind %v", len(opened), network, err, kind)
			}
		}

		if err := accepting.Close(); err != nil {
			t.Error(err)
		}
		if _, err := socket.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close the socket is open: %v", err)
		}
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the file of the socket was removed: %v", err)
	}
}
