package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/testproc"
)

// otherServer is another program with a supervisor, which runs a hostile process with two
// descendants.
type otherServer struct {
	*exec.Cmd
	tree      *hostileTree
	stdin     io.WriteCloser
	cgroupDir string // "": none
}

func init() {
	testproc.Register("other-server", func(args []string) int {
		groups, err := cgroup.Open(args[1])
		if err != nil {
			return 1
		}
		s := NewSupervisor(Config{Cgroups: groups, AdoptOrphans: true})
		spec := program("hostile", "-report", args[0], "daemon", "session")
		p, err := s.Start(testContext(nil), spec)
		if err != nil {
			return 1
		}
		reader, err := p.Log().NewReader(0)
		if err != nil {
			return 1
		}
		defer reader.Close()
		if _, err := reader.Next(testContext(nil), 0); err != nil {
			return 1
		}
		location := ""
		if groups != nil {
			location = groups.Dir()
		}
		fmt.Println(location)
		_, _ = io.Copy(io.Discard, os.Stdin)
		if s.Close(testContext(nil)) != nil {
			return 1
		}
		return 0
	})
}

// startOtherServer starts one with a setting for [cgroup.Open].
func startOtherServer(t *testing.T, where string) *otherServer {
	t.Helper()
	o := &otherServer{tree: newHostileTree(t)}
	argv := testproc.Argv("other-server", o.tree.report, where)
	o.Cmd = exec.Command(argv[0], argv[1:]...)
	var err error
	if o.stdin, err = o.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = o.stdin.Close()
		_ = o.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	o.cgroupDir = strings.TrimSpace(line)
	// The intermediate processes of the daemon end on their own.
	poll(t, "three processes", func() bool { return len(o.tree.alive()) == 3 })
	return o
}
