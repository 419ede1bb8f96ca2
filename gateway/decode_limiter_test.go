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

// Small messages do not wait for large ones.
func TestDecodeLimiter_BoundsLargeMessages(t *testing.T) {
	gate := newDecodeLimiter()
	slots := decodeSlots()
	running, release := make(chan struct{}, 10*slots), make(chan struct{})
	var reading sync.WaitGroup
	for range 10 * slots {
		reading.Go(func() {
			if !gate.run(t.Context(), largeMessageBytes, func() { running <- struct{}{}; <-release }) {
				t.Error("a large message is not decoded")
			}
		})
	}
	for range slots {
		<-running
	}
	read := false
	if !gate.run(t.Context(), largeMessageBytes-1, func() { read = true }) || !read {
		t.Error("a small message is not decoded at once")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the connection has ended"))
	if gate.run(ctx, largeMessageBytes, func() { t.Error("a large message is decoded above the limit") }) {
		t.Error("run ignores the end of the connection")
	}
	if waiting := len(running); waiting != 0 {
		t.Errorf("%d large messages are decoded above the limit of %d", waiting, slots)
	}
	close(release)
	reading.Wait()
}

// The message waits before it is parsed, and before its parameters are decoded.
// Earlier small messages are not delayed.
func TestDecodeLimiter_LargeMessage_WaitsForSlot(t *testing.T) {
	for name, send := range map[string]func(served *receiver, cl *client) (id string){
		"parsed": func(_ *receiver, cl *client) string { // and not decoded
			return cl.ask("no/such", strings.Repeat(" ", largeMessageBytes))
		},
		"decoded": func(served *receiver, _ *client) string {
			m, err := jsonrpc.Parse([]byte(`{"id":77,"method":"environment/status"}`))
			if err != nil {
				t.Error(err)
			}
			go served.request(m, largeMessageBytes) // in place of the receiving goroutine, which waits
			return "77"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, srv := newScriptedServer(t)
				served, cl := srv.serveHere()
				cl.initialize("")
				slots := served.decoding.slots
				if !slots.TryAcquire(int64(decodeSlots())) {
					t.Fatal("a slot is in use")
				}
				cl.must("environment/status", nil)
				id := send(served, cl)
				answered := func() bool {
					synctest.Wait()
					cl.mu.Lock()
					defer cl.mu.Unlock()
					return string(cl.frames[len(cl.frames)-1].ID) == id
				}
				if answered() {
					t.Error("a large message does not wait for a slot")
				}
				slots.Release(int64(decodeSlots()))
				if !answered() {
					t.Error("a large message is not decoded when a slot is free")
				}
			})
		})
	}
}
