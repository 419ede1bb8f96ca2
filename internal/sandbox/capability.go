package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// dropCapabilities takes all capabilities from the calling thread, which has to have no_new_privs, and from whatever it
// executes, also as root. Root is then like the owner of its files. It cannot be undone.
func dropCapabilities() error {
	for capability := 0; ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel knows no more
		}
		if errors.Is(err, unix.EPERM) {
			break // the bounding set is a second lock: with no_new_privs an exec gives nothing that was not there before
		}
		if err != nil {
			return fmt.Errorf("capability %d cannot be dropped: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities cannot be dropped: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capabilities cannot be dropped: %w", err)
	}
	return nil
}
