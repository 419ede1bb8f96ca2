package commandgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
)

// TestMain is also the command of the test, and its descendant: each keeps stdout open, for a
// minute at most. The role is the only argument, so that no role starts itself.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "command":
		if _, err := start("descendant", os.Stdout, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case len(os.Args) == 2 && os.Args[1] == "descendant":
		fmt.Println("running")
	default:
		leakcheck.Main(m)
	}
	time.Sleep(time.Minute)
}

// start starts this program in a role.
func start(role string, stdout *os.File, attributes *syscall.SysProcAttr) (*os.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.StartProcess(program, []string{program, role}, &os.ProcAttr{Files: []*os.File{nil, stdout, os.Stderr}, Sys: attributes})
}

// TestKill_Descendants: when the group was killed, nobody keeps its output open.
func TestKill_Descendants(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	leader, err := start("command", w, Attributes())
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(leader)
	if err != nil {
		_ = leader.Kill()
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	output := bufio.NewReader(r)
	if line, err := output.ReadString('\n'); err != nil || strings.TrimSpace(line) != "running" {
		t.Errorf("the descendant printed %q, %v", line, err)
	}
	g.Kill()
	if _, err := leader.Wait(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(output); err != nil || len(rest) > 0 {
		t.Errorf("after the kill: %q, %v, want the end", rest, err)
	}
	g.Close()
	_ = r.Close()
}
