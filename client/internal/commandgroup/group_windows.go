package commandgroup

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// attributes suspends the command, so that it starts no descendant before it is in its job.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_SUSPENDED}
}

// group is a job object.
type group windows.Handle

func newGroup(leader *os.Process) (group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("failed to make a job object: %w", err)
	}
	withErr := leader.WithHandle(func(process uintptr) { err = windows.AssignProcessToJobObject(job, windows.Handle(process)) })
	if err = errors.Join(err, withErr); err != nil {
		return 0, fmt.Errorf("failed to put the command into a job object: %w", errors.Join(err, windows.CloseHandle(job)))
	}
	if err := resume(uint32(leader.Pid)); err != nil {
		return 0, fmt.Errorf("failed to resume the command: %w", errors.Join(err, windows.CloseHandle(job)))
	}
	return group(job), nil
}

// resume resumes the only thread of a process, whose handle package os does not keep.
func resume(pid uint32) (err error) {
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, windows.CloseHandle(threads)) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err := windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return errors.New("it has no thread")
}

func (g group) kill() { _ = windows.TerminateJobObject(windows.Handle(g), 1) }

func (g group) close() { _ = windows.CloseHandle(windows.Handle(g)) }
