package hostile

import (
	"errors"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"strings"
	"sync/atomic"
)

// sessionAttacks use more than their share of sessions and processes, or those of others.
var sessionAttacks = []attack{
	{name: "clients that come and go", settings: []string{"EXECWIRE_SESSIONS_PER_PRINCIPAL=200", "EXECWIRE_DEFAULT_GRACE=200ms"}, wave: func(a *attackWave) {
		var refused atomic.Int64
		a.together(20, func(int) {
			for range a.times(150) {
				r, ok := a.attacker()
				if !ok {
					return
				}
				if err := r.hello(""); err != nil && !isLimit(err, "TOO_MANY_SESSIONS") {
					a.Errorf("failed to open a session: %v", err)
				} else if err != nil {
					refused.Add(1)
				}
				r.Drop()
			}
		})
		a.Logf("%d of %d sessions were too many", refused.Load(), 20*a.times(150))
	}},
	{name: "connections that come and go", wave: func(a *attackWave) {
		a.together(20, func(int) {
			for range a.times(200) {
				if conn, ok := a.connect(); ok {
					_ = conn.Close()
				}
			}
		})
	}},
	{name: "thousands of sessions", settings: []string{
		"EXECWIRE_SESSIONS_PER_PRINCIPAL=300", "EXECWIRE_CONNECTIONS_PER_LISTENER=5000"}, wave: func(a *attackWave) {
		var granted atomic.Int64
		a.together(20, func(int) {
			for range a.times(100) {
				r, ok := a.attacker()
				if !ok {
					return
				}
				switch err := r.hello(""); {
				case err == nil:
					granted.Add(1)
				case !isLimit(err, "TOO_MANY_SESSIONS"):
					a.Errorf("one session too many is refused with %v", err)
				}
			}
		})
		// The neighbour has one, and those of a wave before may still be there.
		if n := granted.Load(); n > 299 || a.before == 0 && n < min(299, int64(20*a.times(100))) {
			a.Errorf("%d sessions were granted", n)
		}
	}},
	{name: "guesses at sessions", wave: func(a *attackWave) {
		a.together(8, func(i int) {
			r, ok := a.attacker()
			for j := 0; ok && j < a.times(500); j++ {
				guess := fmt.Sprintf("%d-%d%s", i, j, strings.Repeat("x", j))
				if err := r.hello(guess); err == nil || !strings.Contains(err.Error(), "-32600 unknown session id") {
					a.Errorf("the guess %.50q is answered %v", guess, err)
					return
				}
			}
		})
	}},
	{name: "as many processes as there may be", settings: []string{ // output of the waves before is still reserved
		"EXECWIRE_PROCESSES_PER_SESSION=20", "EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=65536"}, wave: func(a *attackWave) {
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			const asked = 60
			for i := range asked {
				text := fmt.Sprintf(`{"id":%d,"method":"process/start","params":{"processId":"%d","argv":["/bin/sh","-c","sleep 1000 & sleep 1000"],"cwd":"/","env":{"PATH":"/bin:/usr/bin"},"tty":false}}`, i+1, i)
				if err := r.Send([]byte(text)); err != nil {
					a.Errorf("failed to ask: %v", err)
					return
				}
			}
			if refused, err := r.answers(asked); err != nil || refused[-32005] != asked-20 || len(refused) != 1 {
				a.Errorf("of %d starts were refused %v, %v", asked, refused, err)
			}
		})
	}},
}

// isLimit reports whether err is an error about a limit, by its reason.
func isLimit(err error, reason string) bool {
	refusal, ok := errors.AsType[*harness.RPCError](err)
	return ok && refusal.Code == -32005 && strings.Contains(string(refusal.Data), reason)
}
