package hostile

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testcert"
	relayharness "github.com/execwire/execwire/relay/harness"
)

// soakHub is a hub, an executor behind it, and a neighbour that uses the executor.
type soakHub struct {
	*testing.T
	hub    *harness.Command
	token  map[string]string // files, by principal
	rounds int
}

// newSoakHub starts hub and executor. Attackers of the hub have a token too.
func newSoakHub(t *testing.T) *soakHub {
	t.Helper()
	h := &soakHub{T: t, token: map[string]string{}}
	dir, table := harness.ShortDir(t), ""
	for name, may := range map[string]string{
		"executor": fmt.Sprintf("act_as_executors=['%s']", harness.ExecutorID), "neighbour": fmt.Sprintf("connect_to_executors=['%s']", harness.ExecutorID),
		"attacker": fmt.Sprintf("act_as_executors=['attacker-*']\nconnect_to_executors=['attacker-*', '%s']", harness.ExecutorID),
	} {
		h.token[name] = testcert.WriteFile(t, filepath.Join(dir, name), []byte(strings.Repeat(name, 6)))
		table += fmt.Sprintf("[[principal]]\nname=%q\ntoken_file=%q\n%s\n", name, h.token[name], may)
	}
	h.hub = harness.NewHub(t, []string{"EXECWIRE_HUB_EXECUTORS_PER_PRINCIPAL=100"}, "--listen", "http://127.0.0.1:0",
		"--principals-file", testcert.WriteFile(t, filepath.Join(dir, "principals.toml"), []byte(table)))
	executor := harness.NewCommand("serve", "--remote", h.hub.URLs[harness.HubTransport], "--executor-id", harness.ExecutorID, "--remote-token-file", h.token["executor"])
	executor.Env = append(executor.Env, "EXECWIRE_RELAY_STREAMS=64", "EXECWIRE_DEFAULT_GRACE=1s", "EXECWIRE_CLOSED_PROCESS_RETENTION=1s")
	executor.Launch(t)
	harness.Eventually(t, "the executor is connected", func() bool {
		list, err := client.Executors(harness.Context(t), h.hub.URLs[harness.HubTransport], client.WithTokenFile(h.token["neighbour"]))
		return err == nil && len(list) == 1 && list[0].Connected
	})
	return h
}

// round runs a command on the executor that prints its input.
func (h *soakHub) round() {
	h.rounds++
	ctx, cancel := context.WithTimeoutCause(h.Context(), harness.StepTimeout, harness.ErrTimeout)
	defer cancel()
	content := strings.Repeat(fmt.Sprintf("%07d\n", h.rounds), largeBytes/8)
	cmd := harness.Prepare(exec.CommandContext(ctx, harness.Execwire, "run", "-i", "--hub", h.hub.URLs[harness.HubTransport], "--executor", harness.ExecutorID,
		"--token-file", h.token["neighbour"], "--", "/bin/cat"))
	cmd.Stdin = strings.NewReader(content)
	if out, err := cmd.Output(); err != nil || string(out) != content {
		h.Errorf("round %d through the hub: %v, %d bytes: %s", h.rounds, err, len(out), cmd.Errors.String())
	}
}

// attack starts the attacks of a principal on the hub until the end.
func (h *soakHub) attack(attacking *sync.WaitGroup, did *tally, scale int, end time.Time) {
	token, err := os.ReadFile(h.token["attacker"])
	if err != nil {
		h.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer " + string(token)}}
	for _, wave := range []func(*attackWave){h.registerMany, h.takeStreams, unfinishedFrames} {
		attacking.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				a := &attackWave{TB: unchecked{h.T}, address: h.hub.Address(harness.HubTransport), header: header, scale: scale, before: i, did: did, end: end}
				a.beginUntil(end, wave)
			}
		})
	}
}

// registerMany registers new ids in each wave, and does not release them.
func (h *soakHub) registerMany(a *attackWave) {
	a.together(a.times(40), func(i int) {
		path := fmt.Sprintf("/cloud/executor/attacker-%d-%d/register", a.before, i)
		if conn, _, answer, err := harness.RoundTrip(a.address, http.MethodPost, path, a.header); err == nil {
			_ = conn.Close()
			if answer.StatusCode == http.StatusOK {
				a.did.add(registeredID, 1)
			}
		}
	})
}

// takeStreams opens as many streams as one websocket can have, and keeps them.
func (h *soakHub) takeStreams(a *attackWave) {
	link, err := relayharness.Dial(context.Background(), relayharness.Options{
		URL:   fmt.Sprintf("ws://%s/executor/%s?role=harness", a.address, harness.ExecutorID),
		Token: func() string { return strings.TrimPrefix(a.header.Get("Authorization"), "Bearer ") },
	})
	if err != nil {
		return
	}
	defer link.Close()
	for range 80 {
		ctx, cancel := context.WithDeadline(context.Background(), a.end)
		conn, err := link.Connect(ctx)
		cancel()
		if err != nil {
			break
		}
		a.owns(conn)
		a.did.add(takenStream, 1)
		_, _ = conn.Write([]byte("PRI "))
	}
	a.hold()
}

// unfinishedFrames begins messages of a harness, and sends nothing more.
func unfinishedFrames(a *attackWave) {
	a.together(a.times(40), func(int) {
		link, err := harness.UpgradeAt(a.address, "/executor/"+harness.ExecutorID+"?role=harness", a.header)
		if err != nil {
			return
		}
		a.owns(link.Conn)
		if link.Frame(harness.OpBinary, false, make([]byte, 100<<10)) == nil {
			a.did.add(unfinishedFrame, 1)
		}
	})
	a.hold()
}
