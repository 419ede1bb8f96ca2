package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// projectMakefile is a project that says a lot while it is made, and takes some
// seconds.
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

// A build says through the relay what it says here, though the websocket on
// either side is cut every second.
func TestABuildThroughTheRelayWhileItIsCut(t *testing.T) {
	slow(t)
	waits(t)
	f := newFleet(t)
	env := goEnvironment(t)
	project := func() string {
		dir := shortDir(t)
		for name, text := range map[string]string{"Makefile": projectMakefile, "main.go": projectMain, "go.mod": "module project\n\ngo 1.26\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	here := prepare(exec.Command("make"))
	here.Dir, here.Env = project(), env
	want := here.complete(t, nil)
	if want.code != 0 || len(want.stdout) < 500_000 {
		t.Fatalf("the project is no good: %d bytes, %q", len(want.stdout), want.stderr)
	}

	args := f.through("--cwd", project(), "--env-inherit", "none")
	for _, variable := range env {
		args = append(args, "--env", variable)
	}
	c := newCommand(append(args, "--", "make")...)
	var stdout lockedBuffer
	c.Stdout = &stdout
	c.launch(t)
	eventually(t, "it says something", func() bool { return stdout.String() != "" }) // a first connection that is cut is an error
	stop := f.cutting(time.Second)
	code := c.await(t)
	cuts := stop()
	got := result{code: code, stdout: stdout.String(), stderr: c.errors.String()}
	if got != want {
		t.Errorf("code %d, %d and %d bytes through the relay; here %d, %d and %d: %.300q",
			got.code, len(got.stdout), len(got.stderr), want.code, len(want.stdout), len(want.stderr), got.stderr)
	}
	if cuts < 4 {
		t.Errorf("only %d connections were cut", cuts)
	}
}

// A hub that is killed and started again is one more loss of websockets.
func TestAHubThatIsStartedAgain(t *testing.T) {
	waits(t)
	f := newFleet(t)
	c := newCommand(append(f.through("--"), shell("i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.03; done; exit 3")...)...)
	var stdout lockedBuffer
	c.Stdout = &stdout
	c.launch(t)
	eventually(t, "it says something", func() bool { return strings.Count(stdout.String(), "\n") > 10 })
	f.hub.send(t, unix.SIGKILL)
	f.hub.await(t)
	f.hub = newHub(t, nil, "--listen", f.hub.urls[hubDoor])
	want := ""
	for i := range 100 {
		want += fmt.Sprintln(i + 1)
	}
	if code := c.await(t); code != 3 || stdout.String() != want {
		t.Errorf("it ended with %d after %d lines: %s", code, strings.Count(stdout.String(), "\n"), c.errors.String())
	}
}
