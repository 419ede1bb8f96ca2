package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestAlignColumns(t *testing.T) {
	rows := [][]string{{"ID", "EXIT", "COMMAND"}, {"a", "SIGKILL", "sleep 1"}, {"é-long", "-", strings.Repeat("x", 30)}}
	want := []string{
		"ID      EXIT     COMMAND",
		"a       SIGKILL  sleep 1",
		"é-long  -        " + strings.Repeat("x", 30),
	}
	if got := alignColumns(rows, 0); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	want[2] = "é-long  -        xxx…"
	if got := alignColumns(rows, 21); got[2] != want[2] || len([]rune(got[0])) != 21 {
		t.Errorf("cut to %q", got)
	}
}

// Command lines must affect neither a terminal nor the shell they are pasted into.
func TestCommandLine_QuotesForShell(t *testing.T) {
	for want, argv := range map[string][]string{
		`make -j2 CC=gcc`:       {"make", "-j2", "CC=gcc"},
		`sh -c 'echo "$HOME"'`:  {"sh", "-c", `echo "$HOME"`},
		`echo 'it'\''s' ''`:     {"echo", "it's", ""},
		`echo $'\x1b]0;evil\a'`: {"echo", "\x1b]0;evil\a"},
		`echo $'a\n"\'b'`:       {"echo", "a\n\"'b"},
		`echo 'é ü'`:            {"echo", "é ü"},
	} {
		if got := commandLine(argv); got != want {
			t.Errorf("%q is shown as %s, want %s", argv, got, want)
		}
	}
	if got := printable("a\x1b[2J"); got != `"a\x1b[2J"` {
		t.Errorf("an id is shown as %s", got)
	}
}

func TestExitWord(t *testing.T) {
	code := func(n int32, cause execwirev1.ExitCause) *execwirev1.ExitRecord {
		return &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_ExitCode{ExitCode: n}, Cause: cause}
	}
	killed := func(n execwirev1.Signal, cause execwirev1.ExitCause) *execwirev1.ExitRecord {
		return &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_Signal{Signal: n}, Cause: cause}
	}
	const byItself = execwirev1.ExitCause_EXIT_CAUSE_EXITED
	for want, exit := range map[string]*execwirev1.ExitRecord{
		"-":                 nil,
		"0":                 code(0, byItself),
		"SIGSEGV":           killed(11, byItself),
		"40":                killed(40, byItself),
		"SIGKILL (timeout)": killed(9, execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT),
		"3 (terminated)":    code(3, execwirev1.ExitCause_EXIT_CAUSE_TERMINATED),
		"lost":              {Cause: execwirev1.ExitCause_EXIT_CAUSE_LOST},
	} {
		if got := exitWord(exit); got != want {
			t.Errorf("%v is %q, want %q", exit, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for want, since := range map[string]time.Duration{
		"0s": -time.Second, "59s": 59900 * time.Millisecond, "1m": time.Minute, "2h": 2*time.Hour + 59*time.Minute,
		"47h": 47 * time.Hour, "2d": 50 * time.Hour,
	} {
		if got := age(since); got != want {
			t.Errorf("%v is %q, want %q", since, got, want)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for name, want := range map[string]execwirev1.Signal{
		"TERM": 15, "sigterm": 15, "SIGUSR1": execwirev1.Signal(unix.SIGUSR1), "9": 9, "64": 64,
		"": 0, "0": 0, "65": 0, "-1": 0, "NONE": 0,
	} {
		if got, err := parseSignal(name); got != want || (err != nil) != (want == 0) {
			t.Errorf("%q is %v, %v", name, got, err)
		}
	}
}

func TestParseKeys(t *testing.T) {
	for text, want := range map[string]string{
		"ctrl-p,ctrl-q": "\x10\x11", "Ctrl-A,d": "\x01d", "": "", "ctrl-@,ctrl-]": "\x00\x1d", "D": "D",
	} {
		if got, err := parseKeys(text); string(got) != want || err != nil {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"ctrl-", "ctrl-pp", "ctrl-1", "ab", "a,", ","} {
		if got, err := parseKeys(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}

// The first byte of a line that is printed decides, for each stream.
func TestLogs_TimesOfLines(t *testing.T) {
	var files [2]*os.File
	for i := range files {
		var err error
		if files[i], err = os.Create(filepath.Join(t.TempDir(), "out")); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = files[i].Close() }()
	}
	const out, errs = execwirev1.OutputStream_OUTPUT_STREAM_STDOUT, execwirev1.OutputStream_OUTPUT_STREAM_STDERR
	printer := &logPrinter{times: true, std: streams{out: files[0], err: files[1]}}
	output := &execwirev1.ProcessOutput{}
	event := &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Output{Output: output}}
	for i, part := range []struct {
		stream execwirev1.OutputStream
		data   string
	}{{out, "a\nb"}, {errs, "e\n"}, {out, "c"}, {out, "d\n\n"}, {errs, "f"}, {out, "\r\ng\n"}, {errs, "\n"}, {errs, "h"}} {
		output.Stream, output.Data, output.ReadTime = part.stream, []byte(part.data), &timestamppb.Timestamp{Seconds: 1e9 + int64(i), Nanos: 7}
		if err := printer.print(event); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"0 a\n0 bcd\n3 \n5 \r\n5 g\n", "1 e\n4 f\n7 h"} {
		got, err := os.ReadFile(files[i].Name())
		want = regexp.MustCompile(`(\d) `).ReplaceAllString(want, "2001-09-09T01:46:4$1.000000007Z ")
		if string(got) != want || err != nil {
			t.Errorf("stream %d is %q, %v, want %q", i, got, err, want)
		}
	}
	output.ReadTime = nil
	if err := printer.print(event); err == nil || !strings.Contains(err.Error(), "--timestamps") {
		t.Errorf("output without a time: %v", err)
	}
}

func TestLogTail_KeepsLastPart(t *testing.T) {
	const chunks = "one\n|t|wo\nthree\nfo|ur\n\n|six"
	for _, test := range []struct {
		bytes, lines int
		chunks, want string
	}{
		{3, -1, chunks, "six"}, {4, -1, chunks, "\nsix"}, {0, -1, chunks, ""}, {100, -1, chunks, "one\ntwo\nthree\nfour\n\nsix"},
		{-1, 0, chunks, ""}, {-1, 1, chunks, "six"}, {-1, 2, chunks, "\nsix"}, {-1, 3, chunks, "four\n\nsix"}, {-1, 5, chunks, "two\nthree\nfour\n\nsix"},
		{-1, 6, chunks, "one\ntwo\nthree\nfour\n\nsix"}, {-1, 7, chunks, "one\ntwo\nthree\nfour\n\nsix"},
		{-1, 1, "a\n|b\n", "b\n"}, {-1, 1, "a\nb\n|", "b\n"}, {-1, 2, "a", "a"}, {-1, 2, "", ""}, {-1, 0, "a\n", ""},
	} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		tail, offset := logTail{bytes: test.bytes, lines: test.lines}, 0
		_ = tail.add(&execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{}}})
		for data := range strings.SplitSeq(test.chunks, "|") {
			_ = tail.add(&execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{Offset: uint64(offset), Data: []byte(data)}}})
			offset += len(data)
		}
		for range 2 { // what was added is not changed
			if _, err := out.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(out.Truncate(0), tail.print(&logPrinter{std: streams{out: out, err: os.Stderr}})); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(out.Name())
			if string(got) != test.want || err != nil {
				t.Errorf("%d bytes, %d lines of %q: %q, %v, want %q", test.bytes, test.lines, test.chunks, got, err, test.want)
			}
		}
		_ = out.Close()
	}
}
