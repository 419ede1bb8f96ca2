package hostile

import (
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"net/http"
	"strings"
)

// handshakeAttacks never complete the handshake.
var handshakeAttacks = []attack{
	{name: "connections that say nothing", wave: func(a *attackWave) {
		for range a.times(400) {
			a.connect()
		}
	}},
	{name: "requests byte by byte", wave: func(a *attackWave) {
		request := upgradeText(a.address)
		a.together(a.times(100), func(i int) {
			conn, ok := a.connect()
			for at := 0; ok && at < len(request)-1; at++ { // the last byte is never sent
				if _, err := io.WriteString(conn, request[at:at+1]); err != nil {
					return // it took longer than a request may
				}
			}
		})
	}},
	{name: "requests without an end", wave: func(a *attackWave) {
		a.together(a.times(50), func(int) {
			conn, ok := a.connect()
			if !ok {
				return
			}
			text := "GET / HTTP/1.1\r\nHost: localhost\r\n"
			var err error
			for sent := 0; err == nil && sent < 1<<20; sent += len(text) {
				_, err = io.WriteString(conn, text)
				text = "X: " + strings.Repeat("x", 1000) + "\r\n"
			}
		})
	}},
	{name: "upgrades that are none", wave: func(a *attackWave) {
		bad := []http.Header{
			{"Sec-Websocket-Key": {"short"}}, {"Sec-Websocket-Version": {"12"}}, {"Origin": {"https://evil.example"}},
			{"Upgrade": {"h2c"}}, {"Connection": {"close"}}, {"Host": {strings.Repeat("x", 10_000)}},
		}
		a.together(a.times(200), func(i int) {
			if link, err := harness.Upgrade(a.address, bad[i%len(bad)]); err == nil {
				a.owns(link.Conn)
				if i%len(bad) != 5 {
					a.Errorf("an upgrade with %v was granted", bad[i%len(bad)])
				}
			}
		})
	}},
	{name: "websockets that say nothing", wave: func(a *attackWave) {
		for range a.times(400) {
			a.attacker()
		}
	}},
	{name: "no HTTP at all", wave: func(a *attackWave) {
		for i, text := range []string{
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", strings.Repeat("\x00", 100_000),
			strings.Repeat("\r\n", 100_000), "GET / HTTP/9.9\r\n\r\n", "GET " + strings.Repeat("/", 1<<20) + " HTTP/1.1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nx\r\n", 100_000),
			"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
		} {
			a.together(a.times(10), func(int) {
				conn, ok := a.connect()
				if !ok {
					return
				}
				_, _ = io.WriteString(conn, text) // may be refused in the middle
				if i == 4 {
					answer := make([]byte, 12)
					if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 505" {
						a.Errorf("an unknown version is answered %q, %v", answer, err)
					}
				}
			})
		}
	}},
}

// upgradeText is an ordinary upgrade request.
func upgradeText(address string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GET / HTTP/1.1\r\nHost: %s\r\n", address)
	_ = harness.UpgradeHeaders().Write(&b)
	b.WriteString("\r\n")
	return b.String()
}
