package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"net"
	"sync"
)

// floodAttacks send more requests than can be handled.
var floodAttacks = []attack{
	{name: "flood of small requests", wave: func(a *attackWave) {
		a.flood(8, 200, `{"id":1,"method":"environment/status"}`, 0)
	}},
	{name: "flood of requests that fail", wave: func(a *attackWave) {
		a.flood(8, 200, `{"id":1,"method":"process/terminate","params":{"processId":"none"}}`, 0)
	}},
	{name: "flood of unknown methods", wave: func(a *attackWave) {
		a.flood(8, 200, `{"id":1,"method":"no/such"}`, -32601)
	}},
	{name: "flood of notifications", wave: func(a *attackWave) {
		a.flood(8, 200, `{"method":"no/such"}`, -32600)
	}},
	{name: "flood of responses", wave: func(a *attackWave) {
		a.flood(8, 200, `{"id":1,"result":{}}`, -32600)
	}},
	{name: "flood of what is no JSON", wave: func(a *attackWave) {
		a.flood(8, 200, `}{`, -32600)
	}},
	{name: "flood of initialize", wave: func(a *attackWave) {
		a.flood(8, 100, `{"id":1,"method":"initialize","params":{"clientName":"again"}}`, -32600)
	}},
	{name: "long polls", most: 400, wave: func(a *attackWave) {
		const polls = 1024
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok || !a.starts(r, "/bin/sleep", "1000") {
				return
			}
			for i := range 2 * polls {
				text := fmt.Sprintf(`{"id":%d,"method":"process/read","params":{"processId":"p","waitMs":600000}}`, i+10)
				if err := r.Send([]byte(text)); err != nil {
					a.Errorf("after %d long polls: %v", i, err)
					return
				}
			}
			// The first ones wait, or are too many for one process; the rest are
			// too many for the connection.
			refused, err := r.answers(polls)
			if err != nil || refused[-32005] != polls {
				a.Errorf("of %d long polls were refused %v, %v", 2*polls, refused, err)
			}
			// Ending the process is not delayed.
			if answer, err := r.ask(9, "process/terminate", harness.RPCParams{"processId": "p"}); err != nil || string(answer.Result) != `{"running":true}` {
				a.Errorf("terminating was answered %s, %v", answer.Data, err)
			}
		})
	}},
	{name: "stuck writes", wave: func(a *attackWave) {
		chunk := fmt.Sprintf("%0*d", 4*20_000, 0)
		a.together(a.times(4), func(int) {
			r, ok := a.settled()
			if !ok || !a.starts(r, "/bin/sleep", "1000") {
				return
			}
			for i := range 200 {
				text := fmt.Sprintf(`{"id":%d,"method":"process/write","params":{"processId":"p","chunk":"%s"}}`, i+10, chunk)
				if err := r.Send([]byte(text)); err != nil {
					a.Errorf("after %d writes: %v", i, err)
					return
				}
			}
			if answer, err := r.ask(9, "process/terminate", harness.RPCParams{"processId": "p"}); err != nil || string(answer.Result) != `{"running":true}` {
				a.Errorf("terminating was answered %s, %v", answer.Data, err)
			}
		})
	}},
}

// starts starts a process p with a pipe as stdin.
func (a *attackWave) starts(r *attacker, argv ...string) bool {
	_, err := r.ask(1, "process/start", harness.StartOf("p", argv, harness.RPCParams{"pipeStdin": true}))
	if err != nil {
		a.Errorf("failed to start a process: %v", err)
	}
	return err == nil
}

// flood makes n clients send a text as fast as they can, in batches of a hundred, while they
// read the responses. Each request gets a response, with the error code unless that is 0, as
// long as the client keeps up with its responses. A client that does not is disconnected.
func (a *attackWave) flood(n, batches int, text string, code int) {
	const batch = 100
	frames := bytes.Repeat(maskedFrame(0x80|harness.OpText, []byte(text)), batch)
	a.together(n, func(int) {
		r, ok := a.settled()
		if !ok {
			return
		}
		var sending sync.WaitGroup
		defer sending.Wait()
		batches := a.times(batches)
		sending.Go(func() {
			for range batches {
				if r.Raw(frames) != nil {
					return // it was put out
				}
			}
		})
		refused, err := r.answers(batches * batch)
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			a.Errorf("a flood of %s: %v", text, err)
		}
		if err != nil {
			_ = r.Conn.Close() // nothing more is sent
		}
		for other, n := range refused {
			if code != 0 && other != code || code == 0 && other != -32005 && other != -32600 {
				a.Errorf("a flood of %s was refused %d times with %d", text, n, other)
			}
		}
		if code != 0 && err == nil && refused[code] != batches*batch {
			a.Errorf("a flood of %d times %s was refused %v", batches*batch, text, refused)
		}
	})
}
