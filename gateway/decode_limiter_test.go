package gateway

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// TestLargeMessagesAreReadAFewAtATime has as many be read as there are places,
// and no more; small ones do not wait for them.
func TestLargeMessagesAreReadAFewAtATime(t *testing.T) {
	gate := newDecodeLimiter()
	places := decodeSlots()
	inside, leave := make(chan struct{}, 10*places), make(chan struct{})
	var reading sync.WaitGroup
	for range 10 * places {
		reading.Go(func() {
			if !gate.run(t.Context(), largeMessageBytes, func() { inside <- struct{}{}; <-leave }) {
				t.Error("a large message is not read")
			}
		})
	}
	for range places {
		<-inside
	}
	read := false
	if !gate.run(t.Context(), largeMessageBytes-1, func() { read = true }) || !read {
		t.Error("a small message is not read at once")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the connection has ended"))
	if gate.run(ctx, largeMessageBytes, func() { t.Error("a large message is read beside as many as may be") }) {
		t.Error("the end of the connection is not noticed")
	}
	if waiting := len(inside); waiting != 0 {
		t.Errorf("%d large messages are read beside %d", waiting, places)
	}
	close(leave)
	reading.Wait()
}

// TestALargeMessageWaitsForItsTurn and holds up no small one before it: when it
// is parsed, and when its parameters are decoded.
func TestALargeMessageWaitsForItsTurn(t *testing.T) {
	for name, say := range map[string]func(served *receiver, cl *client) (id string){
		"parsed": func(_ *receiver, cl *client) string { // and not decoded
			return cl.ask("no/such", strings.Repeat(" ", largeMessageBytes))
		},
		"decoded": func(served *receiver, _ *client) string {
			m, err := jsonrpc.Parse([]byte(`{"id":77,"method":"environment/status"}`))
			if err != nil {
				t.Error(err)
			}
			go served.request(m, largeMessageBytes) // for the receiving goroutine, which waits
			return "77"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, core := newScriptedCore(t)
				served, cl := core.serveHere()
				cl.initialize("")
				places := served.decoding.slots
				if !places.TryAcquire(int64(decodeSlots())) {
					t.Fatal("a place is taken")
				}
				cl.must("environment/status", nil)
				id := say(served, cl)
				answered := func() bool {
					synctest.Wait()
					cl.mu.Lock()
					defer cl.mu.Unlock()
					return string(cl.frames[len(cl.frames)-1].ID) == id
				}
				if answered() {
					t.Error("a large message does not wait")
				}
				places.Release(int64(decodeSlots()))
				if !answered() {
					t.Error("a large message is not read when it is its turn")
				}
			})
		})
	}
}
