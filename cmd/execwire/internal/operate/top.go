package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/display"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/tty"
)

// topFlags are the flags of top.
type topFlags struct {
	json  bool
	count uint32
	delay string
}

func (p Program) newTop() *cobra.Command {
	var flags topFlags
	command := &cobra.Command{
		Use:   "top [-d DELAY] [-n COUNT] [--json]",
		Short: "Show what a server and its processes use",
		Long: `top shows the server, its sessions and the processes of all principals that have not
closed, those that use the processors most first: time of the processors in percent of
one, resident memory, output in bytes per second, and output so far. A process counts
with its descendants. The first screen has averages since the start of each process.

At a terminal the screen is refreshed in place, until q or Ctrl-C. Elsewhere, and with
-n, the lists follow each other. With --json each refresh is one object on a line: time,
server (cpu_percent, resident_bytes, goroutines), sessions (principal, session,
attached) and processes (principal, session, id, pid, state, program,
start_time, cpu_percent, resident_bytes, output_bytes_per_second, output_bytes,
retained_bytes, unacknowledged_bytes, owned, readers); truncated if there are more.

It needs the permission admin. Arguments of processes are not shown.`,
		Example: `  execwire top
  execwire top -n 1 --json | jq '.processes | length'`,
		Args: p.NoArguments,
	}
	f := command.Flags()
	f.BoolVar(&flags.json, "json", false, "print one JSON object for each refresh")
	f.Uint32VarP(&flags.count, "count", "n", 0, "end after this `number` of refreshes (default 0: never)")
	f.StringVarP(&flags.delay, "delay", "d", "2s", "the `time` between refreshes, at least 100ms")
	p.OnServer(command, func(ctx context.Context, c *client.Client, _ []string) error {
		delay, err := config.ParseDuration(flags.delay)
		if err != nil || delay < 100*time.Millisecond {
			return fmt.Errorf("--delay cannot be %q: write a time of at least 100ms, for example 2s", flags.delay)
		}
		return p.top(ctx, c, flags, delay)
	})
	return command
}

// top shows the status again and again.
func (p Program) top(ctx context.Context, c *client.Client, flags topFlags, delay time.Duration) error {
	inPlace := !flags.json && flags.count == 0 && tty.Is(p.Out) && tty.Is(p.In)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	resized := make(chan struct{}, 1)
	if inPlace {
		keyboard := tty.NewKeyboard(p.In, p.Out)
		keyboard.Raw()
		defer keyboard.Restore()
		fmt.Fprint(p.Out, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(p.Out, "\x1b[?25h\x1b[?1049l")
		go endAtKey(p.In, end) // until this program ends
		defer tty.OnResize(func() {
			select {
			case resized <- struct{}{}:
			default:
			}
		})()
	}
	var last *execwirev1.GetStatusResponse
	for round := uint32(0); ; {
		status, err := c.Admin().GetStatus(ctx, &execwirev1.GetStatusRequest{})
		if err != nil {
			if inPlace && ctx.Err() != nil {
				return nil
			}
			return err
		}
		shown := compare(last, status)
		last = status
		if round++; round == flags.count {
			return p.show(shown, flags.json, false)
		}
		timer := time.NewTimer(delay)
		for waiting := true; waiting; {
			if err := p.show(shown, flags.json, inPlace); err != nil {
				return err
			}
			select {
			case <-timer.C:
				waiting = false
			case <-resized: // shown again
			case <-ctx.Done():
				timer.Stop()
				if inPlace {
					return nil
				}
				return context.Cause(ctx)
			}
		}
	}
}

// errQuit ends top.
var errQuit = errors.New("top was ended by a key")

// endAtKey calls end when q or Ctrl-C is pressed, or the terminal is gone.
func endAtKey(in *os.File, end context.CancelCauseFunc) {
	defer end(errQuit)
	key := make([]byte, 1)
	for {
		if n, err := in.Read(key); err != nil || n == 1 && (key[0] == 'q' || key[0] == 3) {
			return
		}
	}
}

// The members of an object of --json.
type (
	topStatus struct {
		Time      time.Time    `json:"time"`
		Server    topServer    `json:"server"`
		Sessions  []topSession `json:"sessions"`
		Processes []topProcess `json:"processes"`
		Truncated bool         `json:"truncated,omitempty"`
	}
	topServer struct {
		CPU        float64 `json:"cpu_percent"`
		Resident   uint64  `json:"resident_bytes"`
		Goroutines uint32  `json:"goroutines"`
	}
	topSession struct {
		Principal string `json:"principal"`
		ID        string `json:"session"`
		Attached  bool   `json:"attached"`
	}
	topProcess struct {
		Principal      string    `json:"principal"`
		Session        string    `json:"session"`
		ID             string    `json:"id"`
		PID            int32     `json:"pid"`
		State          string    `json:"state"`
		Program        string    `json:"program"`
		StartTime      time.Time `json:"start_time"`
		CPU            float64   `json:"cpu_percent"`
		Resident       uint64    `json:"resident_bytes"`
		Rate           float64   `json:"output_bytes_per_second"`
		Output         uint64    `json:"output_bytes"`
		Retained       uint64    `json:"retained_bytes"`
		Unacknowledged uint64    `json:"unacknowledged_bytes"`
		Owned          bool      `json:"owned"`
		Readers        uint32    `json:"readers"`
	}
)

// compare returns a status with what has changed since the last one, which may be nil.
func compare(last, now *execwirev1.GetStatusResponse) topStatus {
	type key struct{ principal, session, id string }
	at := now.GetTime().AsTime()
	before := map[key]*execwirev1.ProcessStatus{}
	for _, p := range last.GetProcesses() {
		before[key{p.GetPrincipal(), p.GetSessionId(), p.GetProcessId()}] = p
	}
	shown := topStatus{Time: at, Truncated: now.GetTruncated(), Sessions: []topSession{}, Processes: []topProcess{},
		Server: topServer{Resident: now.GetServer().GetResidentBytes(), Goroutines: now.GetServer().GetGoroutines()}}
	if last != nil {
		shown.Server.CPU = 100 * perSecond(now.GetServer().GetCpuTime().AsDuration().Seconds()-last.GetServer().GetCpuTime().AsDuration().Seconds(), at.Sub(last.GetTime().AsTime()))
	}
	for _, s := range now.GetSessions() {
		shown.Sessions = append(shown.Sessions, topSession{s.GetPrincipal(), s.GetSessionId(), s.GetAttached()})
	}
	for _, p := range now.GetProcesses() {
		if p.GetState() == execwirev1.ProcessState_PROCESS_STATE_CLOSED {
			continue
		}
		since, old := p.GetStartTime().AsTime(), before[key{p.GetPrincipal(), p.GetSessionId(), p.GetProcessId()}]
		if old.GetPid() == p.GetPid() && old != nil {
			since = last.GetTime().AsTime()
		} else {
			old = nil
		}
		took := at.Sub(since)
		shown.Processes = append(shown.Processes, topProcess{
			Principal: p.GetPrincipal(), Session: p.GetSessionId(), ID: p.GetProcessId(), PID: p.GetPid(),
			State:   strings.ToLower(strings.TrimPrefix(p.GetState().String(), "PROCESS_STATE_")),
			Program: p.GetProgram(), StartTime: p.GetStartTime().AsTime(),
			CPU:      100 * perSecond((p.GetCpuTime().AsDuration()-old.GetCpuTime().AsDuration()).Seconds(), took),
			Resident: p.GetResidentBytes(), Rate: perSecond(float64(p.GetOutputBytes()-old.GetOutputBytes()), took),
			Output: p.GetOutputBytes(), Retained: p.GetRetainedBytes(), Unacknowledged: p.GetUnacknowledgedBytes(),
			Owned: p.GetOwned(), Readers: p.GetReaders(),
		})
	}
	slices.SortStableFunc(shown.Processes, func(a, b topProcess) int {
		switch {
		case a.CPU > b.CPU:
			return -1
		case a.CPU < b.CPU:
			return 1
		}
		return 0
	})
	return shown
}

// perSecond returns a change per second; descendants that ended make it negative.
func perSecond(change float64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return max(0, change/took.Seconds())
}

// show prints a status, in place from the top of the screen.
func (p Program) show(s topStatus, asJSON, inPlace bool) error {
	if asJSON {
		return json.NewEncoder(p.Out).Encode(s)
	}
	var text strings.Builder
	attached := 0
	for _, session := range s.Sessions {
		if session.Attached {
			attached++
		}
	}
	fmt.Fprintf(&text, "%s  server: %.1f%% CPU, %s, %d goroutines  sessions: %d, %d attached  processes: %d\n\n",
		s.Time.Local().Format(time.TimeOnly), s.Server.CPU, display.Bytes(int64(s.Server.Resident)), s.Server.Goroutines, len(s.Sessions), attached, len(s.Processes))
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PID\tCPU%\tMEMORY\tOUTPUT/S\tOUTPUT\tSTATE\tPRINCIPAL\tSESSION\tID\tPROGRAM")
	for _, q := range s.Processes {
		fmt.Fprintf(table, "%d\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", q.PID, q.CPU, display.Bytes(int64(q.Resident)), display.Bytes(int64(q.Rate)), display.Bytes(int64(q.Output)),
			q.State, display.Printable(q.Principal), display.Printable(q.Session), display.Printable(q.ID), display.Printable(q.Program))
	}
	_ = table.Flush() // a strings.Builder does not fail
	if !inPlace {
		_, err := io.WriteString(p.Out, text.String()+"\n")
		return err
	}
	rows, columns := tty.Size(p.Out)
	screen := "\x1b[H"
	for i, line := range strings.Split(strings.TrimRight(text.String(), "\n"), "\n") {
		if i > 0 {
			screen += "\r\n"
		}
		if cut := []rune(line); len(cut) > int(columns) {
			line = string(cut[:columns])
		}
		if screen += line + "\x1b[K"; i+1 >= int(rows) {
			break
		}
	}
	_, err := io.WriteString(p.Out, screen+"\x1b[J")
	return err
}
