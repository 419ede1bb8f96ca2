package testproc

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	register("hostile", hostile)
	register("hostile-descendant", hostileDescendant)
}

// hostile -report FILE [-hold] [-flood] [-leave] [-chain TIME] [-cgroup DIRECTORY] WAY... starts a
// descendant for each way to evade a kill. It prints "ready" when all of them run, and waits; with
// -flood it writes zeros without end, with -leave it exits with code 3. All of the processes ignore
// SIGTERM, SIGINT and SIGHUP, have an empty environment, and record themselves in FILE: see
// [ReadHostile]. With -hold they hold stdout and stderr. The ways:
//
//   - child: no change
//   - stopped: stops itself
//   - group: leaves the process group
//   - session: leaves the session
//   - daemon: leaves the session twice, each time as the child of a process that exits
//   - chain: forks and exits, repeatedly for TIME
//   - daemon-chain: the same, after leaving the session
//   - escape: a daemon that moves to the control group DIRECTORY
func hostile(args []string) int {
	h, ways := parseHostile(args)
	h.ignoreSignals()
	// Here alone: a descendant that is left must not create it again while a test removes its directory.
	file, err := os.OpenFile(h.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	_ = file.Close()
	h.report("process")
	for _, way := range ways {
		if err := h.start(way, 0, way != "child" && way != "stopped" && way != "group" && way != "chain"); err != nil {
			return fail(err)
		}
	}
	for {
		report, err := os.ReadFile(h.file)
		if err != nil {
			return fail(err)
		}
		if bytes.Count(report, []byte("settled ")) >= len(ways) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	switch {
	case h.leave:
		return 3
	case h.flood:
		for zeros := make([]byte, 64<<10); ; {
			_, _ = os.Stdout.Write(zeros)
		}
	}
	return pause()
}

// hostileArgs are the options of all processes of a hostile tree.
type hostileArgs struct {
	file, cgroup       string
	hold, flood, leave bool
	chain              time.Duration
}

func parseHostile(args []string) (h hostileArgs, rest []string) {
	flags := flag.NewFlagSet("hostile", flag.ExitOnError)
	flags.StringVar(&h.file, "report", "", "file to report to")
	flags.StringVar(&h.cgroup, "cgroup", "", "control group to escape to")
	flags.BoolVar(&h.hold, "hold", false, "hold the pipes")
	flags.BoolVar(&h.flood, "flood", false, "flood stdout")
	flags.BoolVar(&h.leave, "leave", false, "exit when all descendants run")
	flags.DurationVar(&h.chain, "chain", 0, "how long a chain is")
	_ = flags.Parse(args)
	return h, flags.Args()
}

// ignoreSignals ignores the signals that can be ignored.
func (h hostileArgs) ignoreSignals() {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
}

// report appends a line with an event and the process.
func (h hostileArgs) report(what string) {
	file, err := os.OpenFile(h.file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %d %d\n", what, os.Getpid(), startTime(os.Getpid()))
}

// start starts a descendant. stage is the number of processes between it and the first one.
func (h hostileArgs) start(way string, stage int, setsid bool) error {
	args := []string{"-report", h.file, "-cgroup", h.cgroup, "-chain", h.chain.String()}
	if h.hold {
		args = append(args, "-hold")
	}
	argv := Argv("hostile-descendant", append(args, way, strconv.Itoa(stage), strconv.Itoa(os.Getpid()))...)
	child := exec.Command(argv[0], argv[1:]...)
	child.Env = []string{NoRaceExitDelay}
	if h.hold {
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
	}
	child.SysProcAttr = &unix.SysProcAttr{Setsid: setsid, Setpgid: way == "group"}
	return child.Start()
}

// hostile-descendant OPTIONS WAY STAGE PARENT is a descendant of hostile.
func hostileDescendant(args []string) int {
	h, rest := parseHostile(args)
	way, parent := rest[0], rest[2]
	stage, _ := strconv.Atoi(rest[1])
	h.ignoreSignals()
	h.report("process")
	var err error
	switch {
	case (way == "daemon" || way == "escape") && stage < 2:
		err = h.start(way, stage+1, true)
	case way == "daemon" || way == "escape":
		for strconv.Itoa(os.Getppid()) == parent {
			time.Sleep(time.Millisecond)
		}
		if way == "escape" {
			err = os.WriteFile(h.cgroup+"/cgroup.procs", []byte("0"), 0)
		}
		h.report("settled")
	case way == "chain" || way == "daemon-chain":
		if stage == 0 {
			h.report("settled")
			h.chain += time.Since(time.Unix(0, 0)) // from now on the time of its end
		}
		if time.Until(time.Unix(0, 0).Add(h.chain)) > 0 {
			err = h.start(way, stage+1, false)
		}
	default:
		h.report("settled")
	}
	switch {
	case err != nil:
		return fail(err)
	case strings.HasSuffix(way, "chain"), stage < 2 && (way == "daemon" || way == "escape"):
		return 0
	case way == "stopped":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	return pause()
}

// Hostile is a process of a hostile tree, identified by its PID and start time.
type Hostile struct {
	PID   int
	Start uint64
}

// ReadHostile reads a report of hostile: all processes that ever existed.
func ReadHostile(file string) (found []Hostile, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var h Hostile
		if n, _ := fmt.Sscanf(line, "process %d %d\n", &h.PID, &h.Start); n == 2 {
			found = append(found, h)
		}
	}
	return found, nil
}

// Alive reports whether the process lives. A zombie does not.
func (h Hostile) Alive() bool { return startTime(h.PID) == h.Start }

// Kill kills the process, unless its PID was reused.
func (h Hostile) Kill() {
	fd, err := unix.PidfdOpen(h.PID, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if h.Alive() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// startTime returns when a process was forked, in ticks since boot, and 0 if it is dead.
func startTime(pid int) uint64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return start
}
