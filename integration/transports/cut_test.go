package transports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// cutScenario is an operation that continues while its connection is cut.
type cutScenario struct {
	name string
	// do runs it. Failures fail the test.
	do func(v *scenarioRun, wire *harness.Proxy)
	// not lists where it is skipped: it is not possible there, or a cut has other effects than
	// elsewhere.
	not []protocol
}

var cutScenarios = []cutScenario{
	{"output", cutOutput, overJSON}, // more is lost there than is retained
	{"input", cutInput, overJSON},   // the same, of its output
	{"a held process", cutHandle, overJSON},
	{"a subscriber", cutSubscriber, overJSON}, // there is none
	{"a wait", cutWait, overJSON},             // it waits for a pattern
	{"small calls", cutCalls, nil},
	{"an upload", cutUpload, overJSON},
	{"a download", cutDownload, []protocol{protocolReferenceOld}}, // files are read by one request there
	{"a walk", cutWalk, []protocol{protocolReferenceOld}},         // it is many calls there
	{"a watch", cutWatch, overJSON},
}

// TestTransports_Cuts checks that operations that survive a lost connection continue without
// loss or repetition, and that the others fail as documented.
func TestTransports_Cuts(t *testing.T) {
	for _, e := range endpoints {
		t.Run(e.name, func(t *testing.T) {
			if e.distant {
				harness.Slow(t)
			}
			harness.Waits(t)
			site := e.open(t)
			if site.network == "" {
				return // nothing is between
			}
			for _, s := range cutScenarios {
				if slices.Contains(s.not, e.protocol) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					v := &scenarioRun{TB: t, ctx: harness.Context(t), endpoint: &e, site: site, dir: harness.ShortDir(t)}
					var wire *harness.Proxy
					v.client, wire = site.dialThrough(t)
					s.do(v, wire)
					if wire.CutCount() == 0 {
						t.Error("nothing was cut")
					}
				})
			}
		})
	}
}

// cutSoon cuts the connection now, and each later one after so many bytes.
func cutSoon(wire *harness.Proxy, bytes int64) {
	wire.CutAfter(func() int64 { return bytes })
	wire.Cut()
}

func cutOutput(v *scenarioRun, wire *harness.Proxy) {
	p := newPatterns()
	events := 0
	exit, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(flooding()), Stdout: p.stdout, Stderr: p.stderr,
		OnStarted: func(*execwirev1.Process) { cutSoon(wire, 700_000) }, OnResumed: func() { events++ }})
	if err != nil {
		v.Fatal(err)
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	p.expectWhole(v)
	if exit.Resumed != events {
		v.Errorf("it was resumed %d times, and %d were reported", exit.Resumed, events)
	}
}

func cutInput(v *scenarioRun, wire *harness.Proxy) {
	const size = 2 << 20
	checked := testproc.StdoutPattern.NewVerifier()
	var end bytes.Buffer
	exit, err := v.client.Run(v.ctx, client.RunOptions{Process: v.process(harness.Program("echo")),
		Stdin: testproc.StdoutPattern.Reader(size), Stdout: checked, Stderr: &end,
		OnStarted: func(*execwirev1.Process) { cutSoon(wire, 1_500_000) }})
	if err != nil {
		v.Fatal(err)
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("what it says at the end", end.String(), "end of input\n")
	if checked.Offset() != size {
		v.Errorf("received %d bytes of %d back", checked.Offset(), size)
	}
}

// counting is a script that prints the numbers up to n, each after the file of the previous
// one exists.
func (v *scenarioRun) counting(n int) []string {
	return harness.Shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do until [ -e go$i ]; do sleep 0.005; done; i=$((i+1)); echo $i; done", n))
}

func (v *scenarioRun) let(i int) {
	v.Helper()
	if err := os.WriteFile(v.path(fmt.Sprint("go", i)), nil, 0o600); err != nil {
		v.Error(err)
	}
}

func cutSubscriber(v *scenarioRun, wire *harness.Proxy) {
	id, err := v.start(v.counting(4))
	if err != nil {
		v.Fatal(err)
	}
	v.let(0)
	events := &order{TB: v}
	var stdout bytes.Buffer
	exit, err := v.client.Follow(v.ctx, client.ProcessRef{ProcessID: id}, client.FollowOptions{Stdout: &stdout,
		OnEvent: func(e *execwirev1.ProcessEvent) error {
			if e.GetOutput() != nil {
				wire.Cut()
				v.let(strings.Count(stdout.String(), "\n"))
			}
			return events.take(e)
		}})
	if err != nil {
		v.Fatal(err)
	}
	events.expectEnd()
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("stdout", stdout.String(), "1\n2\n3\n4\n")
}

func cutWait(v *scenarioRun, wire *harness.Proxy) {
	id, err := v.start(v.counting(2))
	if err != nil {
		v.Fatal(err)
	}
	v.let(0)
	for _, pattern := range []string{"1", "2"} {
		response, err := v.client.Wait(v.ctx, &execwirev1.WaitProcessRequest{ProcessId: id,
			Condition: &execwirev1.WaitProcessRequest_Pattern{Pattern: &execwirev1.WaitForPattern{RegularExpression: pattern}}})
		if err != nil || !response.GetSatisfied() {
			v.Fatalf("%v, %v", response, err)
		}
		wire.Cut()
		v.let(1)
	}
}

func cutCalls(v *scenarioRun, wire *harness.Proxy) {
	file := v.write("file", "text")
	for range 3 {
		wire.Cut()
		if info, err := v.client.Stat(v.ctx, file); err != nil || info.Metadata.GetType() != regularFile {
			v.Errorf("%v, %v", info, err)
		}
		wire.Cut()
		if err := v.expectEntries(v.dir, client.DirEntry{Name: "file", Type: regularFile, TargetType: regularFile}); err != nil {
			v.Error(err)
		}
	}
}

const cutFileBytes = 6 << 20

func cutUpload(v *scenarioRun, wire *harness.Proxy) {
	cutSoon(wire, 2_500_000)
	// Not a reader that can go back: what the server may not have is kept.
	source := struct{ io.Reader }{testproc.StdoutPattern.Reader(cutFileBytes)}
	if _, err := v.client.Upload(v.ctx, v.path("file"), source, client.UploadOptions{}); err != nil {
		v.Fatal(err)
	}
	content, err := os.ReadFile(v.path("file"))
	if n, wrong := testproc.StdoutPattern.NewVerifier().Write(content); err != nil || wrong != nil || n != cutFileBytes {
		v.Errorf("%d bytes of %d arrived: %v, %v", n, cutFileBytes, err, wrong)
	}
}

func cutDownload(v *scenarioRun, wire *harness.Proxy) {
	content := make([]byte, cutFileBytes)
	testproc.StdoutPattern.Fill(content, 0)
	v.write("file", string(content))
	cutSoon(wire, 2_500_000)
	checked := testproc.StdoutPattern.NewVerifier()
	if _, err := v.client.Download(v.ctx, v.path("file"), checked, client.DownloadOptions{}); err != nil || checked.Offset() != cutFileBytes {
		v.Errorf("received %d bytes of %d: %v", checked.Offset(), cutFileBytes, err)
	}
}

// expectLost fails unless err has the type of server errors and reports a lost connection.
func (v *scenarioRun) expectLost(what string, err error) {
	v.Helper()
	var typed *client.Error
	if !errors.As(err, &typed) || typed.Code != codes.Unavailable {
		v.Errorf("%s failed with %v, want that the connection is lost", what, err)
	}
}

func cutWalk(v *scenarioRun, wire *harness.Proxy) {
	const entries = 1200
	for i := range entries {
		v.write(fmt.Sprintf("%d %s", i, strings.Repeat("x", 200)), "")
	}
	cutSoon(wire, 100_000)
	told := 0
	err := v.client.Walk(v.ctx, v.dir, client.WalkOptions{}, func(client.WalkEntry) error { told++; return nil })
	switch {
	case !v.endpoint.lasting:
		v.expectLost(fmt.Sprintf("a walk of %d that told %d", entries, told), err)
	case err != nil || told != entries:
		v.Errorf("a walk of %d entries reported %d: %v", entries, told, err)
	}
}

func cutWatch(v *scenarioRun, wire *harness.Proxy) {
	err := v.client.Watch(v.ctx, v.dir, client.WatchOptions{}, func(e client.WatchEvent) error {
		if e.Started {
			wire.Cut()
			v.write("made", "")
		}
		if len(e.Changes) > 0 {
			return errEnough
		}
		return nil
	})
	switch {
	case !v.endpoint.lasting:
		v.expectLost("a watch", err)
	case !errors.Is(err, errEnough):
		v.Errorf("a watch ended with %v", err)
	}
}
