package rendezvous

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/internal/wsconn"
)

// BenchmarkRoute sends frames from a harness through a hub to an executor.
func BenchmarkRoute(b *testing.B) {
	for _, size := range []int{100, 62 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			hub := startHub(b, Config{Limits: Limits{PlainQueueBytes: 1 << 30, ConnectionQueueBytes: 1 << 30}})
			connect := func(url string, header http.Header) *wsconn.Conn {
				conn, err := wsconn.Dial(b.Context(), url, wsconn.DialOptions{Options: wsconn.Options{Binary: true}, Header: header})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = conn.Close(wsconn.CodeNormal, "") })
				return conn
			}
			executor := connect(hub.register("build-1", ""), nil)
			harness := connect("ws"+strings.TrimPrefix(hub.url, "http")+"/executor/build-1?role=harness", http.Header{"Authorization": {"Bearer ann"}})
			frame, err := proto.Marshal(data("s", 0, strings.Repeat("x", size)))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			sent := make(chan error, 1)
			go func() {
				for range b.N {
					if err := harness.Send(frame); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for range b.N {
				if _, err := executor.Receive(); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-sent; err != nil {
				b.Fatal(err)
			}
		})
	}
}
