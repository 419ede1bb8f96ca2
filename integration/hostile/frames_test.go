package hostile

import (
	"bytes"
	"encoding/binary"
	"github.com/execwire/execwire/integration/harness"
	"strings"
)

// frameAttacks violate the rules of websockets, or use them excessively.
var frameAttacks = []attack{
	{name: "frames byte by byte", wave: func(a *attackWave) {
		a.together(a.times(40), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			for _, b := range maskedFrame(0x80|harness.OpText, []byte(`{"id":1,"method":"environment/status"}`)) {
				if err := r.Raw([]byte{b}); err != nil {
					a.Errorf("a frame that comes slowly is refused: %v", err)
					return
				}
			}
			if _, err := r.reply(1); err != nil {
				a.Errorf("a slow request: %v", err)
			}
		})
	}},
	{name: "fragments of a byte", wave: func(a *attackWave) {
		message := []byte(`{"id":1,"method":"environment/status","x":"` + strings.Repeat("x", 20_000) + `"}`)
		a.together(a.times(20), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			var frames bytes.Buffer
			opcode := byte(harness.OpText)
			for i := range message {
				frames.Write(maskedFrame(opcode, message[i:i+1]))
				frames.Write(maskedFrame(harness.OpContinue, nil))
				opcode = harness.OpContinue
			}
			frames.Write(maskedFrame(0x80|harness.OpContinue, nil))
			if err := r.Raw(frames.Bytes()); err != nil {
				a.Errorf("failed to send fragments: %v", err)
			} else if _, err := r.reply(1); err != nil {
				a.Errorf("a request in fragments: %v", err)
			}
		})
	}},
	{name: "empty fragments without an end", wave: func(a *attackWave) {
		empty := bytes.Repeat(maskedFrame(harness.OpContinue, nil), 10_000)
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			err := r.Raw(maskedFrame(harness.OpText, nil))
			for i := 0; err == nil && i < a.times(100); i++ {
				err = r.Raw(empty)
			}
			if err != nil {
				a.Errorf("empty fragments: %v", err)
			}
		})
	}},
	{name: "pings with unread answers", wave: func(a *attackWave) {
		pings := bytes.Repeat(maskedFrame(0x80|harness.OpPing, bytes.Repeat([]byte("p"), 125)), 1000)
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			for i := range a.times(200) {
				if err := r.Raw(pings); err != nil {
					a.Errorf("after %d pings: %v", i*1000, err)
					return
				}
			}
		})
	}},
	{name: "pongs to nothing", wave: func(a *attackWave) {
		pongs := bytes.Repeat(append(maskedFrame(0x80|harness.OpPong, []byte("nothing")), maskedFrame(0x80|harness.OpPong, binary.BigEndian.AppendUint64(nil, 1<<60))...), 1000)
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			for i := 0; ok && i < a.times(200); i++ {
				if err := r.Raw(pongs); err != nil {
					a.Errorf("after %d pongs: %v", i*2000, err)
					return
				}
			}
		})
	}},
	{name: "broken frames", wave: func(a *attackWave) {
		status := []byte(`{"id":1,"method":"environment/status"}`)
		unmasked := append([]byte{0x80 | harness.OpText, byte(len(status))}, status...)
		long := bytes.Repeat([]byte("x"), 200)
		for name, bad := range map[string][]byte{
			"unmasked": unmasked, "reserved bit": maskedFrame(0xc0|harness.OpText, status), "all reserved bits": maskedFrame(0xf0|harness.OpText, status),
			"opcode 3": maskedFrame(0x83, status), "opcode 15": maskedFrame(0x8f, nil), "long ping": maskedFrame(0x80|harness.OpPing, long),
			"long close": maskedFrame(0x80|harness.OpClose, long), "fragmented ping": maskedFrame(harness.OpPing, nil), "close of a byte": maskedFrame(0x80|harness.OpClose, []byte{3}),
			"close with 1005": maskedFrame(0x80|harness.OpClose, harness.ClosePayload(1005, "")), "close with bad text": maskedFrame(0x80|harness.OpClose, harness.ClosePayload(1000, "\xff")),
			"continues nothing":   maskedFrame(0x80|harness.OpContinue, status),
			"begins in a message": append(maskedFrame(harness.OpText, status), maskedFrame(0x80|harness.OpText, status)...),
			"negative length":     append([]byte{0x80 | harness.OpText, 0xff}, bytes.Repeat([]byte{0xff}, 12)...),
			"a frame too large":   append([]byte{0x80 | harness.OpText, 0xff, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0}, status...),
		} {
			a.together(a.times(10), func(int) {
				r, ok := a.settled()
				if !ok {
					return
				}
				_ = r.Raw(bad) // which may have ended it already
				if _, err := r.ended(); err != nil {
					a.Errorf("%s does not end the connection: %v", name, err)
				}
			})
		}
	}},
	{name: "text that is no text", wave: func(a *attackWave) {
		a.together(a.times(10), func(int) {
			r, ok := a.settled()
			if !ok {
				return
			}
			texts := []string{"\xff\xfe\xfd", "{\"id\":1,\"method\":\"\xff\"}", "\xed\xa0\x80", "\x00", "", "\"\xc3", strings.Repeat("\xff", 100_000)}
			for _, text := range texts {
				if err := r.Send([]byte(text)); err != nil {
					a.Errorf("after %.20q: %v", text, err)
					return
				}
			}
			if refused, err := r.answers(len(texts)); err != nil || refused[-32600] != len(texts) {
				a.Errorf("%d texts that are none were answered by %v, %v", len(texts), refused, err)
			}
		})
	}},
}

// maskedFrame returns a frame of a client. Its mask is zero, which leaves the payload unchanged.
func maskedFrame(first byte, payload []byte) []byte {
	frame := append([]byte{first}, harness.FrameLength(0x80, len(payload))...)
	return append(append(frame, 0, 0, 0, 0), payload...)
}
