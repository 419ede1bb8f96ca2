package rendezvous

import (
	"errors"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/wsconn"
)

// Incomplete frames of one principal do not keep frames of another from being
// received.
func TestUnfinishedFrames_OfAnotherPrincipal_DoNotLockOut(t *testing.T) {
	const frame, total = 300 << 10, 2 << 20
	h := startHub(t, Config{Limits: Limits{FrameBytes: 1 << 20, TotalQueueBytes: total}})
	executor := h.executor("e", "i")
	var attackers []*end
	for range 3 * total / frame {
		attacker := h.harness("e", "attacker", true)
		w, err := attacker.conn.Begin()
		if err == nil {
			_, err = w.Write(make([]byte, frame))
		}
		if err == nil {
			_ = attacker.conn.Prove(t.Context()) // received, or the websocket is closed
		}
		attackers = append(attackers, attacker)
	}
	neighbour := h.harness("e", "neighbour", true)
	for n := range uint32(3) {
		large := data("s", n, strings.Repeat("x", frame))
		neighbour.send(large)
		executor.expect(large)
	}
	gaveWay := 0
	for _, attacker := range attackers {
		select {
		case <-attacker.over:
			var closed *wsconn.ClosedError
			if !errors.As(attacker.err, &closed) || closed.Code != codeTryAgainLater || !strings.Contains(closed.Reason, "queue_bytes_total") {
				t.Errorf("an attacker's websocket ended by %v", attacker.err)
			}
			gaveWay++
		default:
		}
	}
	if gaveWay == 0 {
		t.Error("no attacker's websocket gave way")
	}
}
