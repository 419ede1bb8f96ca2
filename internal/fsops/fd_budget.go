package fsops

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fdBudget is the number of quarters of RLIMIT_NOFILE up to which file operations open
// descriptors. The rest is for connections and for starting processes.
type fdBudget uint64

const (
	handleBudget fdBudget = 2 // for files that stay open between calls
	callBudget   fdBudget = 3 // for all calls
)

// fewDescriptors is the descriptor number below which no budget applies.
const fewDescriptors = 64

// exceeds reports whether d is beyond the budget. The kernel returns the lowest free
// number, so the number of a new descriptor is the number of open ones.
func (d descriptor) exceeds(s fdBudget) bool {
	if d < fewDescriptors {
		return false
	}
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return err == nil && uint64(d) >= limit.Cur/4*uint64(s)
}

// admitFD returns a descriptor that was opened, or closes it and returns EMFILE if it is
// beyond the budget of calls. An open that may have created the file is not refused
// afterwards: its caller calls [checkFDBudget] first.
func admitFD(fd int, flags int) (descriptor, error) {
	d := descriptor(fd)
	if flags&unix.O_CREAT == 0 && d.exceeds(callBudget) {
		d.release()
		return 0, unix.EMFILE
	}
	return d, nil
}

// checkFDBudget returns EMFILE if another descriptor would exceed the budget.
func checkFDBudget(s fdBudget) error {
	d, err := openPath("/")
	if err != nil {
		return err
	}
	defer d.release()
	if d.exceeds(s) {
		return unix.EMFILE
	}
	return nil
}

// explainEMFILE adds a remedy to EMFILE.
func explainEMFILE(err error) error {
	if err == unix.EMFILE {
		return fmt.Errorf("%w: close handles of files, wait for other calls on files, or raise the server's limit of open files (RLIMIT_NOFILE)", err)
	}
	return err
}
