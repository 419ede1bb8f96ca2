// Package commandgroup kills a command that this program started for itself together with its
// descendants: on Windows by a job object, elsewhere by its process group.
package commandgroup

import (
	"os"
	"syscall"
)

// Attributes are those with which to start the command. Ctrl-C at the terminal of this program
// does not reach it. On Windows it is suspended until [New].
func Attributes() *syscall.SysProcAttr { return attributes() }

// Group is a command and its descendants, except on Unix those that have left its process
// group. Its methods may be called concurrently, except Close.
type Group struct{ group group }

// New returns the group of a command that was started with [Attributes], and lets it run.
// After an error the command is still there: kill and wait for it.
func New(leader *os.Process) (*Group, error) {
	g, err := newGroup(leader)
	if err != nil {
		return nil, err
	}
	return &Group{g}, nil
}

// Kill kills all that is left of the group. It does not block. On Unix the leader must not
// have been waited for, or the group still have other members.
func (g *Group) Kill() { g.group.kill() }

// Close frees what the group uses; it kills nothing. No other call may follow.
func (g *Group) Close() { g.group.close() }
