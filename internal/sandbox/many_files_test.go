package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

func init() {
	testproc.Register("sandbox-low-limit", func([]string) int {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 5000}); err != nil {
			return 90
		}
		argv := testproc.Argv("sandbox-many-files")
		fmt.Println(unix.Exec(argv[0], argv, os.Environ()))
		return 91
	})
	testproc.Register("sandbox-many-files", startWithManyFiles)
}

// startWithManyFiles starts a program with each backend while this program has more files open than
// the program may.
func startWithManyFiles([]string) int {
	for range 100 {
		if _, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return 92
		}
	}
	plan, err := (&Policy{Entries: []Entry{{Special: SpecialRoot, Access: AccessRead}}}).Resolve(context.Background(), ResolveOptions{})
	if err != nil {
		return 93
	}
	for _, backend := range []Backend{Bubblewrap, Landlock} {
		sandboxes := New(Options{Without: others(backend)})
		program := shell("ulimit -Sn; ulimit -Hn")
		program.Files, program.Terminal = []int{0, 1, 2}, -1
		var pid int
		confinement, err := sandboxes.Confine(plan)
		if err == nil {
			_, err = confinement.Start(context.Background(), program, func(p Program) (err error) {
				pid, err = p.ForkExec(syscall.SysProcAttr{Setpgid: true})
				return err
			})
		}
		if err != nil {
			fmt.Println(err)
			return 94
		}
		reap(pid)
		sandboxes.Close()
	}
	return 0
}

// The limit of open files of a program does not apply to the setup of its sandbox.
func TestStart_ServerHasMoreFilesOpenThanTheProgramMay(t *testing.T) {
	argv := testproc.Argv("sandbox-low-limit")
	output, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if want := "64\n5000\n64\n5000\n"; err != nil || string(output) != want {
		t.Errorf("got %q, %v", output, err)
	}
}
