package bench

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// forkExecWait is the floor of a start: the time Go needs to run a process without output and
// input.
func (b *bench) forkExecWait() {
	if err := (&exec.Cmd{Path: harness.TrueCommand, Args: []string{harness.TrueCommand}, Env: []string{"PATH=/usr/bin:/bin"}}).Run(); err != nil {
		b.Error(err)
	}
}

// forkExecListen also reads both outputs through pipes, as every program that forwards output
// must. It is no row's floor and only shown.
func (b *bench) forkExecListen() {
	cmd := &exec.Cmd{Path: harness.TrueCommand, Args: []string{harness.TrueCommand}, Env: []string{"PATH=/usr/bin:/bin"}}
	cmd.Stdout, cmd.Stderr = &discardCounter{}, &discardCounter{}
	if err := cmd.Run(); err != nil {
		b.Error(err)
	}
}

// runTrue runs it through RunProcess.
func (b *bench) runTrue(c *client.Client) {
	b.run(c, client.RunOptions{Process: benchCommand(harness.TrueCommand)})
}

// watchTrue runs it through StartProcess and WatchProcess.
func (b *bench) watchTrue(c *client.Client) {
	started, err := c.Processes().StartProcess(b.ctx, benchCommand(harness.TrueCommand))
	if err != nil {
		b.Fatal(err)
	}
	watch, err := c.Processes().WatchProcess(b.ctx, &execwirev1.WatchProcessRequest{
		ProcessId: started.GetProcess().GetProcessId()})
	if err != nil {
		b.Fatal(err)
	}
	var last *execwirev1.ProcessEvent
	for {
		m, err := watch.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		last = m.GetEvents()[len(m.GetEvents())-1]
	}
	if last.GetClosed() == nil {
		b.Fatalf("the last event was %v", last)
	}
}

// ownTrue runs it through OwnProcess and the calls of an owner.
func (b *bench) ownTrue(c *client.Client) {
	b.own(c, benchCommand(harness.TrueCommand)).receive(func([]byte) {})
}

// measureSpawn measures all ways in turn, so that disturbances affect all of them.
func measureSpawn(b *bench) []line {
	server := b.startServer()
	floor, listen := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
	run, own, watch := map[string]harness.Samples[time.Duration]{}, map[string]harness.Samples[time.Duration]{}, map[string]harness.Samples[time.Duration]{}
	clients := map[string]*client.Client{}
	for _, transport := range harness.PeerTransports {
		clients[transport] = b.dial(server, transport)
		b.runTrue(clients[transport])
	}
	for range b.sizes.spawns {
		floor = append(floor, harness.Timed(b.forkExecWait))
		listen = append(listen, harness.Timed(b.forkExecListen))
		for t, c := range clients {
			run[t] = append(run[t], harness.Timed(func() { b.runTrue(c) }))
			own[t] = append(own[t], harness.Timed(func() { b.ownTrue(c) }))
			watch[t] = append(watch[t], harness.Timed(func() { b.watchTrue(c) }))
		}
	}
	b.rawTimes("fork, exec, wait", floor)
	b.rawTimes("the same with two pipes read", listen)
	var lines []line
	for _, t := range harness.PeerTransports {
		b.rawTimes("RunProcess, "+t, run[t])
		b.rawTimes("OwnProcess, "+t, own[t])
		b.rawTimes("StartProcess and WatchProcess, "+t, watch[t])
		lines = append(lines,
			atMost("start → closed, `RunProcess`, "+t+", p50", floor.Median(), run[t].Median(), 1.4, harness.ShowTime),
			atMost("start → closed, `OwnProcess` and calls, "+t+", p50", floor.Median(), own[t].Median(), 1.4, harness.ShowTime),
			atMost("start → closed, `StartProcess` + `WatchProcess`, "+t+", p50", floor.Median(), watch[t].Median(), 1.4, harness.ShowTime))
	}
	return lines
}

// rawTimes reports the distribution of some times.
func (b *bench) rawTimes(what string, s harness.Samples[time.Duration]) {
	b.raw("%s: p10 %s, p50 %s, p90 %s, p99 %s (%d)", what, harness.ShowTime(s.Quantile(0.1)), harness.ShowTime(s.Median()),
		harness.ShowTime(s.Quantile(0.9)), harness.ShowTime(s.Quantile(0.99)), len(s))
}

// inFlight is the number of concurrent processes when their rate is measured.
const inFlight = 64

// spawnRate runs n processes, inFlight at once, and returns how many that is
// per second.
func spawnRate(n int, spawn func()) float64 {
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	took := harness.Timed(func() {
		var workers sync.WaitGroup
		for range inFlight {
			workers.Go(func() {
				for range work {
					spawn()
				}
			})
		}
		workers.Wait()
	})
	return float64(n) / took.Seconds()
}

func measureSpawnRate(b *bench) []line {
	var lines []line
	for _, transport := range harness.PeerTransports {
		server := b.startServer()
		c := b.dial(server, transport)
		floor, listen, ours := harness.Samples[float64]{}, harness.Samples[float64]{}, harness.Samples[float64]{}
		before := server.CPU()
		for range b.sizes.rateRounds {
			floor = append(floor, spawnRate(b.sizes.rateSpawns, b.forkExecWait))
			listen = append(listen, spawnRate(b.sizes.rateSpawns, b.forkExecListen))
			ours = append(ours, spawnRate(b.sizes.rateSpawns, func() { b.runTrue(c) }))
		}
		spent := (server.CPU() - before) / time.Duration(b.sizes.rateRounds*b.sizes.rateSpawns)
		b.raw("%s: fork, exec, wait %.0f; with two pipes read %.0f; RunProcess %.0f /s; server CPU %v each",
			transport, floor, listen, ours, spent)
		lines = append(lines, atLeast(fmt.Sprintf("short processes, %d in flight, one connection, %s", inFlight, transport),
			floor.Median(), ours.Median(), 0.75, "/s"))
	}
	return lines
}
