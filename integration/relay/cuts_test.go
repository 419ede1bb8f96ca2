package relay

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/integration/harness"
	"golang.org/x/sys/unix"
)

// projectMakefile is a project with much output during its build, which takes some seconds.
const projectMakefile = `parts := $(shell seq 1 40)

all: $(addprefix part-,$(parts)) program
	@./program

part-%:
	@echo "making $@" >&2
	@seq $*00000 $*03000 | tee $@
	@sleep 0.1

program: main.go
	@go build -o $@ .
`

const projectMain = `package main

import "fmt"

func main() {
	for i := range 20000 {
		fmt.Println("line", i)
	}
}
`

// A build has the same output through the relay as locally, while the websockets on both sides
// are cut every second.
func TestRelay_BuildWithCuts_Succeeds(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	f := harness.NewFleet(t)
	env := harness.GoEnvironment(t)
	project := func() string {
		dir := harness.ShortDir(t)
		for name, text := range map[string]string{"Makefile": projectMakefile, "main.go": projectMain, "go.mod": "module project\n\ngo 1.26\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	here := harness.Prepare(exec.Command("make"))
	here.Dir, here.Env = project(), env
	want := here.Complete(t, nil)
	if want.Code != 0 || len(want.Stdout) < 500_000 {
		t.Fatalf("the project is no good: %d bytes, %q", len(want.Stdout), want.Stderr)
	}

	args := f.Through("--cwd", project(), "--env-inherit", "none")
	for _, variable := range env {
		args = append(args, "--env", variable)
	}
	c := harness.NewCommand(append(args, "--", "make")...)
	var stdout harness.LockedBuffer
	c.Stdout = &stdout
	c.Launch(t)
	harness.Eventually(t, "it says something", func() bool { return stdout.String() != "" }) // a first connection that is cut is an error
	stop := f.Cutting(time.Second)
	code := c.Await(t)
	cuts := stop()
	got := harness.Result{Code: code, Stdout: stdout.String(), Stderr: c.Errors.String()}
	if got != want {
		t.Errorf("code %d, %d and %d bytes through the relay; here %d, %d and %d: %.300q",
			got.Code, len(got.Stdout), len(got.Stderr), want.Code, len(want.Stdout), len(want.Stderr), got.Stderr)
	}
	if cuts < 4 {
		t.Errorf("only %d connections were cut", cuts)
	}
}

// A restart of the hub is one more loss of websockets.
func TestHub_Restart_ReconnectsExecutors(t *testing.T) {
	harness.Waits(t)
	f := harness.NewFleet(t)
	c := harness.NewCommand(append(f.Through("--"), harness.Shell("i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.03; done; exit 3")...)...)
	var stdout harness.LockedBuffer
	c.Stdout = &stdout
	c.Launch(t)
	harness.Eventually(t, "it says something", func() bool { return strings.Count(stdout.String(), "\n") > 10 })
	f.Hub.Send(t, unix.SIGKILL)
	f.Hub.Await(t)
	f.Hub = harness.NewHub(t, nil, "--listen", f.Hub.URLs[harness.HubTransport])
	want := ""
	for i := range 100 {
		want += fmt.Sprintln(i + 1)
	}
	if code := c.Await(t); code != 3 || stdout.String() != want {
		t.Errorf("it ended with %d after %d lines: %s", code, strings.Count(stdout.String(), "\n"), c.Errors.String())
	}
}
