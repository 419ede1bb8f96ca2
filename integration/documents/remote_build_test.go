package documents

import (
	"bytes"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// remoteBuildCommand is the path of the example that builds a project on another machine.
var remoteBuildCommand = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(filepath.Dir(harness.Execwire), "remote-build")
	return binary, harness.Build(binary, "./examples/remote-build")
})

// hubProject copies the sources of the hub to a new directory, and returns its files.
func hubProject(t *testing.T) (directory string, files []string) {
	t.Helper()
	own := lines(t, "go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", "./cmd/execwire-hub")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	directory = t.TempDir()
	for _, file := range lines(t, "git", "ls-files") {
		switch {
		case file != "go.mod" && file != "go.sum" && !slices.Contains(own, filepath.Dir(filepath.Join(root, file))), strings.HasSuffix(file, "_test.go"):
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(directory, filepath.Dir(file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return directory, files
}

// lines returns the output lines of a program of the repository.
func lines(t *testing.T, program string, arguments ...string) []string {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Dir = "../.."
	said, err := command.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", program, arguments, err)
	}
	return strings.Fields(string(said))
}

// TestRemoteBuild_Cuts_BuildsTheSame builds the hub on an executor behind a hub with the program
// in examples. Its output is complete, and the result equals a local build.
func TestRemoteBuild_Cuts_BuildsTheSame(t *testing.T) {
	harness.Slow(t)
	harness.Waits(t)
	program, err := remoteBuildCommand()
	if err != nil {
		t.Fatal(err)
	}
	project, files := hubProject(t)
	options := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o"}
	here := filepath.Join(t.TempDir(), "hub")
	local := exec.CommandContext(harness.Context(t), "go", append(slices.Clone(options), here, "./cmd/execwire-hub")...)
	local.Dir, local.Env = project, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := local.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	made, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}

	f := harness.NewFleet(t)
	to := t.TempDir()
	script := `for i in 1 2; do echo $LIST | xargs -n 16 sh -c 'cat "$@"; sleep 0.2' sh; done; go ` + strings.Join(options, " ") + ` hub ./cmd/execwire-hub`
	arguments := []string{"-hub", f.URL(), "-executor", harness.ExecutorID, "-result", "hub", "-to", to, "-env", "CGO_ENABLED=0", "-env", "LIST=" + strings.Join(files, " ")}
	for _, name := range []string{"PATH", "HOME", "GOFLAGS", "GOPROXY", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GONOSUMDB", "GOSUMDB"} {
		if value, ok := os.LookupEnv(name); ok {
			arguments = append(arguments, "-env", name+"="+value)
		}
	}
	builder := harness.Prepare(exec.Command(program, append(arguments, project, "sh", "-c", script)...))
	builder.Stdout = &harness.LockedBuffer{}
	stop := f.Cutting(time.Second)
	builder.Launch(t)
	code, cuts := builder.Await(t), stop()

	var want bytes.Buffer
	for range 2 {
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join(project, file))
			if err != nil {
				t.Fatal(err)
			}
			want.Write(content)
		}
	}
	if got := builder.Stdout.(*harness.LockedBuffer).String(); code != 0 || got != want.String() {
		t.Fatalf("it ended with %d and wrote %d bytes of %d: %s", code, len(got), want.Len(), builder.Errors.String())
	}
	got, err := os.ReadFile(filepath.Join(to, "hub"))
	if err != nil || !bytes.Equal(got, made) {
		t.Errorf("the result has %d bytes and not the %d of what is built here: %v", len(got), len(made), err)
	}
	if cuts < 3 {
		t.Errorf("the connections were cut %d times: %s", cuts, builder.Errors.String())
	}
}
