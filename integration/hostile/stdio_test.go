package hostile

import (
	"bufio"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testrace"
	"io"
	"regexp"
	"strings"
	"testing"
)

// loggedURL returns the URL of a websocket listener from the log.
var loggedURL = regexp.MustCompile(`ws://([0-9.:]+)`)

// TestHostileStdioClients_DoNotAffectOthers runs attacks by the client on the standard streams
// while a neighbour works over a websocket.
func TestHostileStdioClients_DoNotAffectOthers(t *testing.T) {
	testrace.WithoutRace(t)
	scale := testScale()
	hello := `{"id":1,"method":"initialize","params":{"clientName":"attacker"}}` + "\n" + `{"method":"initialized"}` + "\n"
	status := `{"id":2,"method":"environment/status"}` + "\n"
	deaf := "disconnecting a JSON-RPC client that does not read"
	start := `{"id":3,"method":"process/start","params":` + harness.MustJSON(harness.StartOf("p", harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<40)), nil)) + "}\n"
	for name, tc := range map[string]struct {
		says  func(to io.Writer) error
		reads bool   // it reads its answers
		told  string // what of them is the last
		out   string // the log line of its disconnection, after which its last write blocks
	}{
		"lines byte by byte": {says: func(to io.Writer) error {
			for _, b := range []byte(hello + strings.Repeat("\r\n", 100) + status) {
				if _, err := to.Write([]byte{b}); err != nil {
					return err
				}
			}
			return nil
		}, reads: true, told: `"id":2,"result"`},
		"a line without an end": {says: func(to io.Writer) error {
			return repeated(strings.Repeat(" ", 64<<10), 1000)(to)
		}, reads: true, told: "-32600", out: "longer than 2097152 bytes"},
		"blank lines":   {says: repeated(strings.Repeat("\n", 64<<10), 30*scale)},
		"no JSON":       {says: repeated(strings.Repeat("}{\n\x00\n\xff\n", 1000), 10*scale), reads: true, told: "-32600", out: deaf},
		"deep JSON":     {says: repeated(strings.Repeat("[", 1<<20)+"\n", 2*scale), reads: true, told: "-32600", out: deaf},
		"notifications": {says: repeated(hello+strings.Repeat(`{"method":"no/such"}`+"\n", 1000), 2*scale), reads: true, told: "-32600", out: deaf},
		"unread refusals": {says: func(to io.Writer) error {
			for {
				if _, err := io.WriteString(to, strings.Repeat(`{"id":1,"method":"no/such"}`+"\n", 1000)); err != nil {
					return nil
				}
			}
		}, out: deaf},
		"unread output": {says: repeated(hello+start, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.NewCommand("serve", "--listen", "stdio", "--listen", "ws://127.0.0.1:0")
			server.Env = append(server.Env, "EXECWIRE_REQUEST_BYTES=2MiB", "EXECWIRE_DEFAULT_GRACE=1s")
			stdin, err := server.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			server.Launch(t)
			defer func() { _, _ = stdin.Close(), stdout.Close() }()
			var address string
			harness.Eventually(t, "the log has the address of the listener", func() bool {
				if found := loggedURL.FindStringSubmatch(server.Errors.String()); found != nil {
					address = found[1]
				}
				return address != ""
			})
			neighbour := moveIn(t, address)
			neighbour.work(1)
			memory := server.ResidentBytes(t, "VmHWM")
			neighbour.workDuringAttackOn(address, scale, func(a *attackWave) {
				said := make(chan error, 1)
				go func() { said <- tc.says(stdin) }()
				if tc.reads {
					lines := bufio.NewReader(stdout)
					for line := ""; !strings.Contains(line, tc.told); {
						if line, err = lines.ReadString('\n'); err != nil {
							a.Errorf("the answers ended with %v before %s", err, tc.told)
							break
						}
					}
					go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with the server
				}
				var failed error
				all := false
				isOut := func() bool { return tc.out != "" && strings.Contains(server.Errors.String(), tc.out) }
				a.await("everything is said, or the client put out", func() bool {
					select {
					case failed = <-said:
						all = true
					default:
					}
					return all || isOut()
				})
				if !all {
					_ = stdin.Close()
					failed = <-said
				}
				if failed != nil && !isOut() {
					a.Errorf("failed to send: %v", failed)
				}
			})
			if grown := (server.ResidentBytes(t, "VmHWM") - memory) >> 20; grown > 200 && !testrace.Enabled {
				t.Errorf("resident memory grew by up to %d MiB", grown)
			}
			neighbour.work(2)
		})
	}
}

// repeated sends a text n times.
func repeated(text string, n int) func(to io.Writer) error {
	return func(to io.Writer) error {
		for range n {
			if _, err := io.WriteString(to, text); err != nil {
				return err
			}
		}
		return nil
	}
}
