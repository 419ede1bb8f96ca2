package hostile

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
)

// patient is a connection whose Read and Write fail on a timeout.
type patient struct{ net.Conn }

func (p *patient) Read(b []byte) (int, error) {
	_ = p.SetReadDeadline(time.Now().Add(harness.StepTimeout))
	return p.Conn.Read(b)
}

func (p *patient) Write(b []byte) (int, error) {
	_ = p.SetWriteDeadline(time.Now().Add(harness.StepTimeout))
	return p.Conn.Write(b)
}

// TestHostileTLSHandshakes_DoNotAffectOthers attacks a TLS listener before authentication while
// a neighbour works on another listener.
func TestHostileTLSHandshakes_DoNotAffectOthers(t *testing.T) {
	authority := testcert.NewAuthority(t)
	dir := harness.ShortDir(t)
	certificate, key := authority.Issue("server").Write(t, dir, "server")
	server := harness.NewCommand("serve", "--listen", "ws://127.0.0.1:0", "--listen", "wss://127.0.0.1:0")
	server.Env = append(server.Env, "EXECWIRE_TLS_CERT="+certificate, "EXECWIRE_TLS_KEY="+key, "EXECWIRE_DEFAULT_GRACE=1s")
	said, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server.Launch(t)
	plain, secure := "", ""
	for lines := bufio.NewScanner(said); (plain == "" || secure == "") && lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "wss://"); ok {
			secure = address
		} else {
			plain = harness.AddressOf(lines.Text())
		}
	}
	if plain == "" || secure == "" {
		t.Fatalf("the server did not come up: %s", server.Errors.String())
	}
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	for name, wave := range map[string]func(a *attackWave){
		"connections that say nothing": func(a *attackWave) {
			for range a.times(300) {
				a.connect()
			}
		},
		"a hello byte by byte": func(a *attackWave) {
			a.together(a.times(50), func(int) {
				conn, ok := a.connect()
				for _, b := range []byte(hello + strings.Repeat("\x00", 400)) { // the rest is never sent
					if !ok {
						return
					}
					_, err := conn.Write([]byte{b})
					ok = err == nil
				}
			})
		},
		"what is no hello": func(a *attackWave) {
			for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 100_000), "\x16\x03\x01\xff\xff", "\x15\x03\x03\x00\x02\x02\x28", hello + strings.Repeat("\xff", 600)} {
				a.together(a.times(20), func(int) {
					if conn, ok := a.connect(); ok {
						_, _ = io.WriteString(conn, text)
						_, _ = io.Copy(io.Discard, &patient{conn})
					}
				})
			}
		},
		"handshakes that are all": func(a *attackWave) {
			config := &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost"}
			a.together(a.times(50), func(i int) {
				conn, ok := a.connect()
				if !ok {
					return
				}
				client := tls.Client(&patient{conn}, config)
				if err := client.HandshakeContext(t.Context()); err != nil {
					a.Errorf("failed to shake hands: %v", err)
				} else if i%2 == 0 {
					_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\nUpgr")
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			neighbour := moveIn(t, plain)
			neighbour.work(3)
			kernel := harness.ProcStat{Tb: t, Pid: server.ServerPID(t)}
			before := kernel.Descriptors()
			neighbour.workDuringAttackOn(secure, testScale(), wave)
			harness.Eventually(t, "the descriptors of the attack are closed", func() bool { return kernel.Descriptors() <= before })
			neighbour.Shut()
		})
	}
}
