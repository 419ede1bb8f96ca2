package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client"
	casts "github.com/execwire/execwire/client/recording"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/recording"
	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newLogsCommand(std streams) *cobra.Command {
	var process client.ProcessRef
	printer := &logPrinter{std: std}
	command := &cobra.Command{
		Use:   "logs [-f] [-t] [-n LINES|-c BYTES] [--since TIME] [--until TIME] [--stdout|--stderr] [--json] ID",
		Short: "Print the output of a process",
		Long: `logs prints the retained output of a process, its stdout on stdout and its stderr on
stderr, without owning or blocking it. Where output is missing, a line on stderr says
so. With -f it continues until the process has closed, across lost connections, and
exits with 0, whatever the exit code of the process. -n counts the lines of stdout and
stderr together. With -t each line is preceded by the time, in UTC, at which the server
read its first byte from the process, or the first that is printed. The times never
decrease, also if the server's clock is set back.

--since and --until select output by that time: a time as in 2026-11-29T10:00:00Z or, in
the time of this host, 2026-11-29T10:00:00 or 2026-11-29; a number of seconds since 1970;
or a duration before now, as 10m.

With --json each event is an object on its own line: seq, event, and for each event
  output  stream (stdout, stderr or terminal), offset in the stream, read_time, data
          (base64), and text if the data is UTF-8
  exited  exit: exit_code or signal, cause, exit_time, wall_seconds
  closed  no more output follows
  gap     first_available_seq, dropped_bytes, upper_bound if it may be less, and cause:
          limit, files_full, disk_full, write_failed or read_failed

With --cast the output is a recording in the format of asciinema, with the times at which
the server read it and the sizes of the terminal: see execwire play and record.`,
		Example: `  execwire logs build
  execwire logs -t -n 20 build
  execwire logs --since 10m build
  execwire logs -f -c 4096 build
  execwire logs --cast shell > shell.cast
  execwire logs --json --since-seq 17 build | jq -r .text`,
		Args: cobra.MatchAll(ids("process", 1), exclusive("stdout", "stderr"), exclusive("tail", "bytes"), exclusive("cast", "tail"), exclusive("cast", "bytes"),
			exclusive("cast", "timestamps"), exclusive("cast", "since"), exclusive("cast", "until"), exclusive("cast", "stdout"), exclusive("cast", "stderr"), exclusive("cast", "json"), nonNegative("tail", "bytes")),
	}
	f := command.Flags()
	follow := f.BoolP("follow", "f", false, "follow the output until the process has closed")
	f.Uint64Var(&process.AfterSeq, "since-seq", 0, "start after the event with this `number`")
	lines := f.IntP("tail", "n", 0, "start with the last `lines` of the retained output")
	last := f.IntP("bytes", "c", 0, "start with the last `bytes` of the retained output")
	f.BoolVarP(&printer.times, "timestamps", "t", false, "print when the server read it before each line")
	f.Var(&pointInTime{&printer.since}, "since", "start with output that was read at this `time` or later")
	f.Var(&pointInTime{&printer.until}, "until", "leave out output that was read at this `time` or later")
	f.BoolVar(&printer.stdout, "stdout", false, "only stdout, or the terminal")
	f.BoolVar(&printer.stderr, "stderr", false, "only stderr")
	f.BoolVar(&printer.json, "json", false, "print JSON objects, one per line")
	var cast recording.Format
	f.Var(&cast, "cast", "print a recording in the format of asciinema, `v2` (which every player reads) or v3")
	f.Lookup("cast").NoOptDefVal = "v2"
	addSynonyms(f, map[string]string{"lines": "tail"})
	addSessionFlag(command, &process.SessionID)
	onServer(command, serverUse{persistent: true, completes: complete.Record}, func(ctx context.Context, c *client.Client, arguments []string) error {
		process.ProcessID = arguments[0]
		if cast.Version != 0 {
			_, err := casts.Write(ctx, c, process, std.out, casts.Options{Version: cast.Version, Retained: !*follow})
			return err
		}
		hasLines, hasBytes := f.Changed("tail"), f.Changed("bytes")
		if hasLines || hasBytes || !*follow {
			var err error
			switch {
			case hasLines:
				process.AfterSeq, err = printTail(ctx, c, process, printer, logTail{bytes: -1, lines: *lines})
			case hasBytes:
				process.AfterSeq, err = printTail(ctx, c, process, printer, logTail{bytes: *last, lines: -1})
			default:
				process.AfterSeq, err = readRetained(ctx, c, process, printer.wants, printer.print)
			}
			if err != nil || !*follow {
				return err
			}
		}
		return followLogs(ctx, c, process, printer)
	})
	return command
}

// pointInTime is the value of a flag for a time, in the forms that docker takes.
type pointInTime struct{ at *time.Time }

// Type and String implement pflag.Value.
func (pointInTime) Type() string { return "time" }
func (p pointInTime) String() string {
	if p.at == nil || p.at.IsZero() {
		return ""
	}
	return p.at.Format(time.RFC3339Nano)
}

// Set implements pflag.Value.
func (p pointInTime) Set(text string) error {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			*p.at = at
			return nil
		}
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) < maxUnixSeconds {
		*p.at = time.Unix(0, int64(seconds*1e9))
		return nil
	}
	if before, err := time.ParseDuration(text); err == nil {
		*p.at = time.Now().Add(-before)
		return nil
	}
	return errors.New("write a time as 2026-11-29T10:00:00Z or 2026-11-29, seconds since 1970, or a duration before now, as 10m")
}

// maxUnixSeconds is a bound of times that a number can be, of the year 2200.
const maxUnixSeconds = 7.3e9

// followLogs prints events until the process has closed.
func followLogs(ctx context.Context, c *client.Client, process client.ProcessRef, printer *logPrinter) error {
	report := terminal.NewLossReport(printer.std.err)
	defer report.End()
	exit, err := c.Follow(ctx, process, client.FollowOptions{
		OnEvent: func(e *execwirev1.ProcessEvent) error {
			if !printer.wants(e) {
				return nil
			}
			return printer.print(e)
		},
		OnLost:    func(error) { report.Begin() },
		OnResumed: func() { report.Resumed() },
	})
	var lost *client.LostError
	switch {
	case errors.As(err, &lost) && client.Reason(lost.Err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return &exitError{code: codeFailed, err: err, hint: "the server was started anew, or has forgotten the process"}
	case err == nil && exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN:
		fmt.Fprintln(printer.std.err, "execwire: the server shut down and ended the process")
	}
	return err
}

// readRetained calls do with the wanted retained events of a process, and returns the
// cursor after them.
func readRetained(
	ctx context.Context, c *client.Client, process client.ProcessRef,
	wants func(*execwirev1.ProcessEvent) bool, do func(*execwirev1.ProcessEvent) error,
) (uint64, error) {
	after := process.AfterSeq
	for until := uint64(0); ; {
		page, err := c.ReadOutput(ctx, process, client.ReadOptions{AfterSeq: after})
		if err != nil {
			return 0, err
		}
		until = cmp.Or(until, page.GetLastSeq())
		for _, e := range page.GetEvents() {
			if !wants(e) {
				continue
			}
			if err := do(e); err != nil {
				return 0, err
			}
		}
		if after = page.GetNextAfterSeq(); after >= until || len(page.GetEvents()) == 0 {
			return after, nil
		}
	}
}

// printTail prints the end of the retained output, of which it reads not much more, and returns
// the cursor after it.
func printTail(ctx context.Context, c *client.Client, process client.ProcessRef, printer *logPrinter, part logTail) (uint64, error) {
	page, err := c.ReadOutput(ctx, process, client.ReadOptions{AfterSeq: process.AfterSeq, MaxBytes: 1})
	if err != nil {
		return 0, err
	}
	begin, last := process.AfterSeq, page.GetLastSeq()
	for events := uint64(16); ; events *= 8 {
		kept := part
		if process.AfterSeq = begin; last > begin+events {
			process.AfterSeq = last - events
		}
		end, err := readRetained(ctx, c, process, printer.wants, kept.add)
		if err != nil {
			return 0, err
		}
		if kept.complete || process.AfterSeq == begin {
			return end, kept.print(printer)
		}
	}
}

// eventObject is the JSON output for an event.
type eventObject struct {
	Seq   uint64 `json:"seq,omitempty"`
	Event string `json:"event"`

	Stream string  `json:"stream,omitempty"`
	Offset *uint64 `json:"offset,omitempty"`
	Data   []byte  `json:"data,omitempty"`
	Text   *string `json:"text,omitempty"`

	ReadTime *time.Time `json:"read_time,omitempty"`

	Exit *exitObject `json:"exit,omitempty"`

	FirstAvailableSeq uint64 `json:"first_available_seq,omitempty"`
	DroppedBytes      uint64 `json:"dropped_bytes,omitempty"`
	UpperBound        bool   `json:"upper_bound,omitempty"`
	Cause             string `json:"cause,omitempty"`
}

// logPrinter prints events of a process.
type logPrinter struct {
	stdout, stderr, json, times bool      // flags
	since, until                time.Time // flags; zero: not given
	std                         streams
	inLine                      [2]bool // of stdout and stderr, with times: the last line printed is not complete
}

// wants reports whether to print the event.
func (p *logPrinter) wants(e *execwirev1.ProcessEvent) bool {
	output := e.GetOutput()
	if output == nil {
		return p.json || e.GetGap() != nil || isRestart(e)
	}
	if at := output.GetReadTime(); at != nil && (at.AsTime().Before(p.since) || !p.until.IsZero() && !at.AsTime().Before(p.until)) {
		return false
	}
	fromStderr := output.GetStream() == execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	return !(p.stdout && fromStderr || p.stderr && !fromStderr)
}

// isRestart reports whether the event is the end of a process whose server was restarted.
func isRestart(e *execwirev1.ProcessEvent) bool {
	return e.GetExited().GetExit().GetCause() == execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED
}

func (p *logPrinter) print(e *execwirev1.ProcessEvent) error {
	if p.json {
		return p.printObject(e)
	}
	if gap := e.GetGap(); gap != nil {
		fmt.Fprintf(p.std.err, "execwire: %s bytes of output are missing here: %s\n", droppedWords(gap), gapWords(gap.GetCause()))
		return nil
	}
	if isRestart(e) {
		fmt.Fprintln(p.std.err, "execwire: the server was restarted: the process ended with it, and its output is lost")
		return nil
	}
	out, inLine, data := p.std.out, &p.inLine[0], e.GetOutput().GetData()
	if e.GetOutput().GetStream() == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
		out, inLine = p.std.err, &p.inLine[1]
	}
	if p.times || !p.since.IsZero() || !p.until.IsZero() {
		at := e.GetOutput().GetReadTime()
		if at == nil {
			return &exitError{code: codeFailed, err: errors.New("--timestamps, --since, --until: the server is older, and has no times of output"),
				hint: "upgrade the server, or leave them out"}
		}
		if p.times {
			data = addTimes(data, at.AsTime(), inLine)
		}
	}
	_, err := out.Write(data)
	return err
}

// addTimes puts the time of data, in the format of docker, before each line that begins in
// it. inLine is whether data begins inside of a line, and then whether it ends so.
func addTimes(data []byte, at time.Time, inLine *bool) []byte {
	prefix := at.UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000000Z ")
	var text []byte
	for line := range bytes.Lines(data) {
		if !*inLine {
			text = append(text, prefix...)
		}
		text = append(text, line...)
		*inLine = line[len(line)-1] != '\n'
	}
	return text
}

// gapWords says why output is missing.
func gapWords(cause execwirev1.GapCause) string {
	switch cause {
	case execwirev1.GapCause_GAP_CAUSE_FILES_FULL:
		return "they were evicted; the files of all processes have reached output_file_bytes_total, or a quarter of RLIMIT_NOFILE"
	case execwirev1.GapCause_GAP_CAUSE_DISK_FULL:
		return "they were evicted; the disk of the server is full"
	case execwirev1.GapCause_GAP_CAUSE_WRITE_FAILED:
		return "the server could not write them to its output_directory"
	case execwirev1.GapCause_GAP_CAUSE_READ_FAILED:
		return "the server could not read them from its output_directory"
	}
	return "they were evicted"
}

func droppedWords(gap *execwirev1.OutputGap) string {
	if gap.GetUpperBound() {
		return fmt.Sprintf("up to %d", gap.GetDroppedBytes())
	}
	return fmt.Sprint(gap.GetDroppedBytes())
}

func (p *logPrinter) printObject(e *execwirev1.ProcessEvent) error {
	object := eventObject{Seq: e.GetSeq()}
	switch event := e.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		object.Event, object.Stream = "output", enumWord(event.Output.GetStream(), "OUTPUT_STREAM_")
		object.Offset, object.Data = &event.Output.Offset, event.Output.GetData()
		if utf8.Valid(object.Data) {
			object.Text = new(string(object.Data))
		}
		if at := event.Output.GetReadTime(); at != nil {
			object.ReadTime = new(at.AsTime())
		}
	case *execwirev1.ProcessEvent_Exited:
		object.Event, object.Exit = "exited", describeExit(event.Exited.GetExit())
	case *execwirev1.ProcessEvent_Closed:
		object.Event = "closed"
	case *execwirev1.ProcessEvent_Gap:
		object.Event = "gap"
		object.FirstAvailableSeq, object.DroppedBytes = event.Gap.GetFirstAvailableSeq(), event.Gap.GetDroppedBytes()
		object.UpperBound, object.Cause = event.Gap.GetUpperBound(), enumWord(event.Gap.GetCause(), "GAP_CAUSE_")
	default:
		return nil // of a newer server
	}
	return printJSON(p.std.out, object)
}

// logTail keeps the last part of its input.
type logTail struct {
	bytes, lines int // how much of it; below 0 is no limit
	events       []*execwirev1.ProcessEvent
	size, breaks int  // of events: bytes, and bytes that end a line
	complete     bool // there was more than the part
}

// add appends an event, and drops those that are certainly not in the part.
func (t *logTail) add(e *execwirev1.ProcessEvent) error {
	t.count(e, 1)
	t.events = append(t.events, e)
	for len(t.events) > 1 {
		first, size := t.events[0], t.size
		t.count(first, -1)
		isBeyond := t.bytes >= 0 && size > t.bytes && t.size >= t.bytes || t.lines >= 0 && t.breaks > t.lines
		if !isBeyond {
			t.count(first, 1)
			break
		}
		t.events, t.complete = t.events[1:], true
	}
	return nil
}

func (t *logTail) count(e *execwirev1.ProcessEvent, sign int) {
	data := e.GetOutput().GetData()
	t.size += sign * len(data)
	t.breaks += sign * bytes.Count(data, []byte{'\n'})
}

// skipped returns how many of the bytes of events are before the part.
func (t *logTail) skipped() int {
	if t.bytes >= 0 {
		return max(0, t.size-t.bytes)
	}
	var data []byte
	for _, e := range t.events {
		data = append(data, e.GetOutput().GetData()...)
	}
	start := len(data)
	for range t.lines {
		if start == 0 {
			return 0
		}
		start = 1 + bytes.LastIndexByte(data[:start-1], '\n')
	}
	return start
}

func (t *logTail) print(p *logPrinter) error {
	skip := t.skipped()
	for _, e := range t.events {
		data := e.GetOutput().GetData()
		if skip > 0 {
			n := min(skip, len(data))
			skip -= n
			if n == len(data) {
				continue
			}
			e = proto.CloneOf(e)
			e.GetOutput().Offset += uint64(n)
			e.GetOutput().Data = data[n:]
		}
		if err := p.print(e); err != nil {
			return err
		}
	}
	return nil
}
