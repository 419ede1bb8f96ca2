package hostile

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"strings"
)

// tightMessages are small limits of messages that a test can reach. One byte more is rejected,
// and the total bounds the unfinished messages of all clients.
var tightMessages = []string{
	"EXECWIRE_FRAME_BYTES=1MiB", "EXECWIRE_REQUEST_BYTES=4MiB",
	"EXECWIRE_INCOMING_BYTES_TOTAL=16MiB", "EXECWIRE_INCOMING_BYTES_PER_CONNECTION=8MiB",
}

// roomyMessages has the same limits of a message, and a total that is never reached.
var roomyMessages = []string{"EXECWIRE_FRAME_BYTES=1MiB", "EXECWIRE_REQUEST_BYTES=4MiB"}

// messageAttacks send too much, or messages that are expensive to parse.
var messageAttacks = []attack{
	{name: "frames and messages that are too large", settings: tightMessages, wave: func(a *attackWave) {
		const frame = 1 << 20
		a.together(a.times(40), func(i int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			if i%2 == 0 { // one byte too many in a frame
				_ = r.Raw(maskedFrame(0x80|harness.OpText, make([]byte, frame+1)))
			} else { // or in five frames that are as large as they may be
				for j, opcode := range []byte{harness.OpText, harness.OpContinue, harness.OpContinue, harness.OpContinue, harness.OpContinue} {
					if err := r.Raw(maskedFrame(opcode, make([]byte, frame))); err != nil && j == 0 {
						a.Errorf("a frame of %d bytes is refused: %v", frame, err)
					}
				}
			}
			if code, err := r.ended(); err != nil || code != 1009 && code != 1013 {
				a.Errorf("a message too large ended the connection with %d, %v", code, err)
			}
		})
	}},
	{name: "large messages that do not end", settings: tightMessages, wave: func(a *attackWave) {
		part := maskedFrame(harness.OpText, []byte(strings.Repeat(" ", 1<<20)))
		more := maskedFrame(harness.OpContinue, []byte(strings.Repeat(" ", 1<<20)))
		a.together(a.times(60), func(int) {
			if r, ok := a.attacker(); ok {
				_ = r.Raw(part, more, more) // may fail when others use the whole budget
			}
		})
	}},
	{name: "large requests at once", settings: tightMessages, wave: func(a *attackWave) {
		text := fmt.Sprintf(`{"id":1,"method":"process/write","params":{"processId":"p","chunk":"%s"}}`, strings.Repeat("AAAA", 200_000))
		a.together(a.times(40), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			for range a.times(10) {
				if err := r.Send([]byte(text)); err != nil {
					return // the total was reached
				}
			}
		})
	}},
	{name: "deep JSON", settings: roomyMessages, wave: func(a *attackWave) {
		const depth = 500_000
		texts := []string{
			strings.Repeat("[", depth), strings.Repeat(`{"a":`, depth/5), strings.Repeat("[", depth) + strings.Repeat("]", depth),
			`{"id":1,"method":"process/start","params":` + strings.Repeat(`{"argv":[`, depth/10) + "}",
			`{"id":1,"method":"process/start","params":{"argv":` + strings.Repeat("[", 120) + strings.Repeat("]", 120) + "}}",
		}
		a.askInTurn(20, texts, func(refused map[int]int) bool { return refused[-32600]+refused[-32602] == len(texts) })
	}},
	{name: "many values", settings: roomyMessages, most: 500, wave: func(a *attackWave) {
		const many = 90_000
		var members, names strings.Builder
		for i := range many {
			fmt.Fprintf(&members, `"%x":0,`, i)
			fmt.Fprintf(&names, `"%x":"",`, i)
		}
		list := strings.TrimSuffix(strings.Repeat(`"",`, many), ",")
		start := `{"id":1,"method":"process/start","params":{"processId":"p","cwd":"/","tty":false,`
		texts := []string{
			`{"id":1,"method":"x",` + members.String() + `"y":0}`,
			start + `"env":{},"argv":["/bin/true",` + list + `]}}`,
			start + `"argv":["/bin/true"],"env":{` + names.String() + `"y":""}}}`,
			start + `"argv":["/bin/true"],"env":{` + names.String() + `"0":""}}}`, // which is there already
			`{"id":1,"method":"x","params":[` + strings.Repeat("0,", 300_000) + `0]}`,
			`{"id":1,"method":"x","params":` + strings.Repeat("1", 900_000) + `}`,
			`{"id":1,"method":"` + strings.Repeat(`\u0000`, 150_000) + `"}`,
			`{"id":"` + strings.Repeat(`\ud83d\ude00`, 70_000) + `","method":"x"}`,
		}
		// One starts a process, the next finds its id taken.
		a.askInTurn(10, texts, func(refused map[int]int) bool { return refused[-32601] == 4 && refused[-32600] == 3 })
	}},
	{name: "one id for all requests", wave: func(a *attackWave) {
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			const requests = 500
			for range requests {
				if err := r.Send([]byte(`{"id":7,"method":"fs/getMetadata","params":{"path":"/"}}`)); err != nil {
					a.Errorf("failed to ask: %v", err)
					return
				}
			}
			if refused, err := r.answers(requests); err != nil || len(refused) > 0 {
				a.Errorf("%d requests with one id: %v refused, %v", requests, refused, err)
			}
		})
	}},
	{name: "long paths that wait for each other", settings: tightMessages, wave: func(a *attackWave) {
		path := "/" + strings.Repeat("x/", 3000)
		text := fmt.Sprintf(`{"id":1,"method":"fs/writeFile","params":{"path":"%s","dataBase64":""}}`, path)
		a.together(a.times(5), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			const requests = 1000
			for range requests {
				if err := r.Send([]byte(text)); err != nil {
					a.Errorf("failed to ask: %v", err)
					return
				}
			}
			if _, err := r.answers(requests); err != nil {
				a.Errorf("long paths: %v", err)
			}
		})
	}},
}

// askInTurn makes n clients send texts in turn, and checks the responses with holds.
func (a *attackWave) askInTurn(n int, texts []string, holds func(refused map[int]int) bool) {
	a.together(a.times(n), func(int) {
		r, ok := a.settled()
		if !ok {
			return
		}
		refused := map[int]int{}
		for _, text := range texts {
			if err := r.Send([]byte(text)); err != nil {
				a.Errorf("after %.80s: %v", text, err)
				return
			}
			answer, err := r.answers(1)
			if err != nil {
				a.Errorf("%.80s: %v", text, err)
				return
			}
			for code, n := range answer {
				refused[code] += n
			}
		}
		if !holds(refused) {
			a.Errorf("the refusals of %d texts were %v", len(texts), refused)
		}
	})
}
