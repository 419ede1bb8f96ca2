package hostile

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testrace"
)

// attack is a load that a client can put on a server. One wave of it ends by itself; attackers
// may leave connections to be dropped at its end.
type attack struct {
	name string
	// settings are those of the server, in the form NAME=value.
	settings []string
	// most limits the growth of the server's memory in MiB in a soak, including garbage, and half
	// of it in a smaller run; 0 means usualGrowth.
	most int64
	wave func(a *attackWave)
}

// environment returns settings with which the server soon removes the sessions of the attack.
//
// Garbage is collected earlier than usual, because its amount at the peak varies between runs
// by more than the cost of an attack.
func (one attack) environment() []string {
	return append([]string{"EXECWIRE_DEFAULT_GRACE=1s", "GOGC=25"}, one.settings...)
}

// usualGrowth is two to three times the measured cost of most attacks at all scales. An
// unbounded buffer grows far beyond it.
const usualGrowth = 240

// bound returns the limit of the server's memory growth in MiB.
func (one attack) bound(scale int) int64 {
	most := one.most
	if most == 0 {
		most = usualGrowth
	}
	if scale < soakScale {
		most /= 2
	}
	return most
}

// attacks are all attacks, by kind.
func attacks() []attack {
	var all []attack
	for _, some := range [][]attack{handshakeAttacks, frameAttacks, messageAttacks, floodAttacks, readingAttacks, sessionAttacks} {
		all = append(all, some...)
	}
	return all
}

// attackWave is one wave of an attack on a server. Its methods are safe for concurrent use.
type attackWave struct {
	testing.TB
	address string      // of the websocket listener
	header  http.Header // of upgrades; nil adds nothing
	scale   int         // how much of everything, in tenths of a soak
	before  int         // waves that were before this one
	did     *tally      // what succeeded; nil counts nothing
	end     time.Time   // when nothing is awaited any more; zero is patience

	mu    sync.Mutex
	conns []net.Conn // guarded by mu; dropped at the end of the wave
}

// Scales of attacks.
const (
	smallScale = 1
	benchScale = 3 // at which a neighbour gets enough done to be measured
	soakScale  = 10
)

// testScale is the scale of a test: small in a short run, and full in a soak.
func testScale() int {
	switch {
	case testing.Short():
		return smallScale
	case harness.Soak():
		return soakScale
	}
	return 2
}

// times returns n in a soak and less otherwise.
func (a *attackWave) times(n int) int { return max(1, n*a.scale/soakScale) }

// begin runs one wave.
func (a *attackWave) begin(wave func(*attackWave)) {
	defer a.dropAll()
	wave(a)
}

// owns registers a connection to be dropped at the end of the wave.
func (a *attackWave) owns(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, conn)
}

func (a *attackWave) dropAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range a.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	a.conns = nil
}

// together runs one step n times concurrently, and waits for all.
func (a *attackWave) together(n int, step func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { step(i) })
	}
	running.Wait()
}

// await is eventually for any goroutine.
func (a *attackWave) await(what string, holds func() bool) {
	deadline := time.Now().Add(harness.StepTimeout)
	if !a.end.IsZero() && a.end.Before(deadline) {
		deadline = a.end
	}
	for ; !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.Errorf("timeout waiting until %s", what)
			return
		}
	}
}

// connect opens a connection that sends nothing.
func (a *attackWave) connect() (net.Conn, bool) {
	conn, err := net.Dial("tcp", a.address)
	if err != nil {
		a.Errorf("failed to connect: %v", err)
		return nil, false
	}
	a.owns(conn)
	return conn, true
}

// attacker opens a websocket.
func (a *attackWave) attacker() (*attacker, bool) {
	link, err := harness.Upgrade(a.address, a.header)
	if err != nil {
		a.Errorf("failed to open a websocket: %v", err)
		return nil, false
	}
	a.owns(link.Conn)
	return &attacker{WebsocketConn: link}, true
}

// settled opens a websocket and a session.
func (a *attackWave) settled() (*attacker, bool) {
	r, ok := a.attacker()
	if ok {
		if err := r.hello(""); err != nil {
			a.Errorf("failed to open a session: %v", err)
			return nil, false
		}
	}
	return r, ok
}

// attacker is a client that reads on demand. It is for one goroutine.
type attacker struct {
	*harness.WebsocketConn
	session string
}

// hello initializes; resume is a session to resume, or empty.
func (r *attacker) hello(resume string) error {
	params := harness.RPCParams{"clientName": "attacker"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	answer, err := r.ask(0, "initialize", params)
	if err != nil {
		return err
	}
	_, session, _ := strings.Cut(string(answer.Result), `"sessionId":"`)
	r.session, _, _ = strings.Cut(session, `"`)
	return r.Send([]byte(`{"method":"initialized"}`))
}

// ask sends a request and reads until its response. An error response is an error.
func (r *attacker) ask(id int, method string, params any) (harness.RPCFrame, error) {
	if err := r.Send([]byte(harness.RequestText(id, method, params))); err != nil {
		return harness.RPCFrame{}, err
	}
	return r.reply(id)
}

// reply reads until the response to a request. An error response is an error.
func (r *attacker) reply(id int) (harness.RPCFrame, error) {
	_ = r.Conn.SetReadDeadline(time.Now().Add(harness.StepTimeout))
	for {
		frame, err := r.Receive()
		if err == nil && frame.Kind == "text" {
			err = frame.Parse()
		}
		switch {
		case err != nil:
			return frame, fmt.Errorf("%w before request %d was answered", err, id)
		case frame.Kind != "text" || frame.Method != "" || string(frame.ID) != fmt.Sprint(id):
		case frame.Error != nil:
			return frame, frame.Error
		default:
			return frame, nil
		}
	}
}

// ended reads until the end of the connection, and returns the close code, or 0 if there was
// none.
func (r *attacker) ended() (code int, err error) {
	_ = r.Conn.SetReadDeadline(time.Now().Add(harness.StepTimeout))
	for {
		frame, err := r.Receive()
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			return code, err
		}
		if err != nil {
			return code, nil
		}
		if frame.Kind == "close" && len(frame.Data) >= 2 {
			code = int(frame.Data[0])<<8 | int(frame.Data[1])
		}
	}
}

// answers reads n responses and counts errors by code.
func (r *attacker) answers(n int) (refused map[int]int, err error) {
	_ = r.Conn.SetReadDeadline(time.Now().Add(harness.StepTimeout))
	refused = map[int]int{}
	for n > 0 {
		frame, err := r.Receive()
		if err != nil {
			return refused, fmt.Errorf("%w with %d answers to come", err, n)
		}
		if frame.Kind != "text" {
			continue
		}
		if err := frame.Parse(); err != nil {
			return refused, err
		}
		if frame.Method != "" {
			continue
		}
		n--
		if frame.Error != nil {
			refused[frame.Error.Code]++
		}
	}
	return refused, nil
}

// keptWorkers is how many goroutines a server keeps for later calls.
const keptWorkers = 16

// TestHostileClients_DoNotAffectOthers runs every attack against a separate server while a
// neighbour works on it. All responses to the neighbour are right, the server's memory stays
// bounded, and nothing remains of the attack.
func TestHostileClients_DoNotAffectOthers(t *testing.T) {
	testrace.WithoutRace(t)
	for _, one := range attacks() {
		t.Run(one.name, func(t *testing.T) {
			server := harness.Serve(t, one.environment()...)
			pid := server.ServerPID(t)
			neighbour := moveIn(t, server.Address(harness.WebsocketTransport))
			neighbour.work(3)
			goroutines := func() int { return goroutines(t, server.Address(harness.WebsocketTransport)) }
			kernel := harness.ProcStat{Tb: t, Pid: pid}
			before, memory, running := kernel.Descriptors(), server.ResidentBytes(t, "VmHWM"), goroutines()
			rounds := neighbour.workDuring(one, testScale())
			grown := (server.ResidentBytes(t, "VmHWM") - memory) >> 20
			t.Logf("%d rounds of the neighbour; resident memory grew by up to %d MiB", rounds, grown)
			if most := one.bound(testScale()); grown > most && !testrace.Enabled {
				t.Errorf("resident memory grew by up to %d MiB, want at most %d", grown, most)
			}
			harness.Eventually(t, "the descriptors of the attack are closed", func() bool { return kernel.Descriptors() <= before })
			harness.Eventually(t, "the processes of the attack are gone", func() bool { return len(harness.Descendants(pid)) == 0 })
			harness.Eventually(t, "the goroutines of the attack have ended", func() bool { return goroutines() <= running+keptWorkers })
			neighbour.work(3)
		})
	}
}

// goroutines returns how many goroutines the server at an address says that it has.
func goroutines(t *testing.T, address string) (n int) {
	t.Helper()
	// Over a connection of its own, so that all of the server's goroutines for it have ended.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(string(text), "\ngo_goroutines ")
	if _, err := fmt.Sscan(value, &n); err != nil {
		t.Fatalf("no go_goroutines in %q: %v", text, err)
	}
	return n
}
