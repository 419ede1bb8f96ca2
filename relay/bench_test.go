package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// carriers has constructors for pairs of carriers of each kind.
var carriers = map[string]func(testing.TB) (Carrier, Carrier){
	"memory": func(testing.TB) (Carrier, Carrier) { return pipe() },
	"websocket": func(t testing.TB) (Carrier, Carrier) {
		accepted := make(chan *wsconn.Conn, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, err := wsconn.Accept(w, r, wsconn.Options{Binary: true})
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}))
		t.Cleanup(s.Close)
		c, err := wsconn.Dial(context.Background(), "ws"+strings.TrimPrefix(s.URL, "http"),
			wsconn.DialOptions{Options: wsconn.Options{Binary: true}})
		if err != nil {
			t.Fatal(err)
		}
		return c, <-accepted
	},
}

// pair is a message channel between two ends.
type pair struct {
	send, answer  func([]byte) error
	receive, hear func() ([]byte, error) // for replies
	stop          func()
}

// bareFrames sends each message in a frame of its own, without the package.
func bareFrames(a, b Carrier) *pair {
	return &pair{send: a.Send, hear: a.ReceiveOwned, answer: b.Send, receive: b.ReceiveOwned, stop: func() {
		var both sync.WaitGroup
		both.Go(func() { _ = a.Close(codeNormal, "") })
		both.Go(func() { _ = b.Close(codeNormal, "") })
		both.Wait()
	}}
}

// streamFrames sends messages on a stream.
func streamFrames(t testing.TB, a, b Carrier) *pair {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	var both sync.WaitGroup
	both.Go(func() { _ = h.Run(context.Background(), a) })
	both.Go(func() { _ = x.Run(context.Background(), b) })
	s := openReliable(t, h)
	send(t, s, "x")
	p := accept(t, x)
	expect(t, p, "x")
	ctx := context.Background()
	return &pair{
		send:    func(b []byte) error { return s.Send(ctx, b) },
		hear:    func() ([]byte, error) { return s.Receive(ctx) },
		answer:  func(b []byte) error { return p.Send(ctx, b) },
		receive: func() ([]byte, error) { return p.Receive(ctx) },
		stop: func() {
			_ = h.Close(ReasonGoingAway)
			_ = x.Close(ReasonGoingAway)
			both.Wait()
		},
	}
}

// benchmarkPairs runs a benchmark for bare frames and streams over each carrier.
func benchmarkPairs(b *testing.B, run func(*testing.B, *pair)) {
	for _, kind := range []string{"memory", "websocket"} {
		for _, stream := range []bool{false, true} {
			name := kind + "/frames"
			if stream {
				name = kind + "/stream"
			}
			b.Run(name, func(b *testing.B) {
				left, right := carriers[kind](b)
				p := bareFrames(left, right)
				if stream {
					p = streamFrames(b, left, right)
				}
				defer p.stop()
				run(b, p)
			})
		}
	}
}

// BenchmarkThroughput sends messages of several sizes one way.
func BenchmarkThroughput(b *testing.B) {
	for _, size := range []int{1 << 10, 62 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			benchmarkPairs(b, func(b *testing.B, p *pair) {
				b.SetBytes(int64(size))
				message := make([]byte, size)
				var receiving sync.WaitGroup
				receiving.Go(func() {
					for range b.N {
						if _, err := p.receive(); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportAllocs()
				for range b.N {
					if err := p.send(message); err != nil {
						b.Error(err)
						return
					}
				}
				receiving.Wait()
			})
		})
	}
}

// BenchmarkRoundTrip sends one small message at a time back and forth.
func BenchmarkRoundTrip(b *testing.B) {
	benchmarkPairs(b, func(b *testing.B, p *pair) {
		var answering sync.WaitGroup
		answering.Go(func() {
			for range b.N {
				message, err := p.receive()
				if err == nil {
					err = p.answer(message)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
		message := make([]byte, 100)
		b.ReportAllocs()
		for range b.N {
			if err := p.send(message); err != nil {
				b.Error(err)
				return
			}
			if _, err := p.hear(); err != nil {
				b.Error(err)
				return
			}
		}
		answering.Wait()
	})
}
