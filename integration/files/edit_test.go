package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// A text is replaced once or, if it is not unique, not at all; and a process that a line of
// a shell starts is waited for and looked up by its own methods.
func TestClient_EditAndProcess(t *testing.T) {
	ctx := harness.Context(t)
	c, err := client.Dial(ctx, harness.NewServer(t, nil).URLs[harness.UnixTransport])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("one two two"), 0o640); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Edit(ctx, path, "one", "1", false); n != 1 || err != nil {
		t.Errorf("edited %d times: %v", n, err)
	}
	for old, count := range map[string]int{"two": 2, "three": 0} {
		_, err := c.Edit(ctx, path, old, "x", false)
		if e := new(client.EditError); !errors.As(err, &e) || e.Count != count {
			t.Errorf("editing %s: %v", old, err)
		}
	}
	if n, err := c.Edit(ctx, path, "two", "2", true); n != 2 || err != nil {
		t.Errorf("edited %d times: %v", n, err)
	}
	if content, _ := os.ReadFile(path); string(content) != "1 2 2" {
		t.Errorf("the file has %q", content)
	}
	for name, want := range map[string]bool{path: true, path + "-none": false} {
		if exists, err := c.Exists(ctx, name); exists != want || err != nil {
			t.Errorf("%s exists: %v, %v", name, exists, err)
		}
	}

	process, err := c.Start(ctx, client.StartOptions{Process: client.Command{Argv: client.Shell("echo u''p $$; read x"), PipeStdin: true}.Request()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Close() }()
	waited, err := process.WaitFor(ctx, &execwirev1.WaitProcessRequest{
		Condition: &execwirev1.WaitProcessRequest_Pattern{Pattern: &execwirev1.WaitForPattern{RegularExpression: "up"}}})
	if err != nil || !waited.GetSatisfied() {
		t.Errorf("waited: %v, %v", waited, err)
	}
	if ports, err := process.Ports(ctx); err != nil || len(ports.GetPorts()) != 0 {
		t.Errorf("ports: %v, %v", ports, err)
	}
	if _, err := process.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	if exit, err := process.Wait(ctx); err != nil || !exit.OK() {
		t.Errorf("ended: %+v, %v", exit, err)
	}
	var output []byte
	for event, err := range process.Output(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		output = append(output, event.Data...)
	}
	if want := fmt.Sprintf("up %d\n", process.PID()); string(output) != want {
		t.Errorf("it wrote %q instead of %q", output, want)
	}
	if err := process.WatchPorts(ctx, func(*execwirev1.WatchPortsResponse) error { return nil }); err != nil {
		t.Errorf("watching the ports of an ended process: %v", err)
	}
}
