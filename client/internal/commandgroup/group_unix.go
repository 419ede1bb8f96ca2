//go:build unix

package commandgroup

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// group is the process group of its leader.
type group int

func newGroup(leader *os.Process) (group, error) { return group(leader.Pid), nil }

func (g group) kill() { _ = syscall.Kill(-int(g), syscall.SIGKILL) }

func (g group) close() {}
