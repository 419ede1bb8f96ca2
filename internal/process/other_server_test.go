package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/testproc"
)

// otherServer is a program with a supervisor of its own, which runs a hostile process with two descendants.
type otherServer struct {
	*exec.Cmd
	tribe *tribe
	stdin io.WriteCloser
	place string // of its control groups; "": it has none
}

func init() {
	testproc.Register("other-server", func(args []string) int {
		groups, err := OpenCgroups(args[1])
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
		place := ""
		if groups != nil {
			place = groups.place.dir
		}
		fmt.Println(place)
		_, _ = io.Copy(io.Discard, os.Stdin)
		if s.Close(testContext(nil)) != nil {
			return 1
		}
		return 0
	})
}

// startOther starts one whose control groups are in a directory, see [OpenCgroups].
func startOther(t *testing.T, where string) *otherServer {
	t.Helper()
	o := &otherServer{tribe: newTribe(t)}
	argv := testproc.Argv("other-server", o.tribe.report, where)
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
	o.place = strings.TrimSpace(line)
	// The stages of the daemon end on their own.
	poll(t, "three processes", func() bool { return len(o.tribe.alive()) == 3 })
	return o
}
