// Package systemd reports the state of this program to systemd, and takes over the
// sockets on which systemd listens for it: sd_notify(3) and sd_listen_fds(3).
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// States for [Service.Notify].
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

const (
	notifyVariable = "NOTIFY_SOCKET"
	pidVariable    = "LISTEN_PID"
	countVariable  = "LISTEN_FDS"
	namesVariable  = "LISTEN_FDNAMES"
	// firstSocket is the descriptor of the first socket.
	firstSocket = 3
	// maxSockets bounds LISTEN_FDS.
	maxSockets = 1024
)

// Service is this program as a service of systemd.
type Service struct {
	// Sockets are the sockets on which systemd listens for this program. The caller
	// closes them.
	Sockets []net.Listener

	notify string
}

// Inherit returns what systemd passed to this program, and removes its variables from
// the environment, so that children do not use them. Call it once, before anything is
// started. Without systemd the service has no sockets, and its notifications go nowhere.
// Sockets are taken only if LISTEN_PID names this process.
func Inherit() (*Service, error) {
	service := &Service{notify: os.Getenv(notifyVariable)}
	pid, count := os.Getenv(pidVariable), os.Getenv(countVariable)
	for _, name := range []string{notifyVariable, pidVariable, countVariable, namesVariable} {
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return service, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("failed to take the sockets of systemd: %s is %q, not a number up to %d", countVariable, count, maxSockets)
	}
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		unix.CloseOnExec(fd)
	}
	for fd := firstSocket; fd < firstSocket+n; fd++ {
		socket, err := listener(fd)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("failed to take socket %d of systemd: %w", fd, err), service.Close())
		}
		service.Sockets = append(service.Sockets, socket)
	}
	return service, nil
}

// listener returns the listener of a descriptor, which it closes.
func listener(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "socket "+strconv.Itoa(fd))
	defer func() { _ = file.Close() }()
	socket, err := net.FileListener(file) // a duplicate
	if err != nil {
		return nil, fmt.Errorf("it is no listening stream socket: %w", err)
	}
	if local, ok := socket.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path is that of systemd
	}
	return socket, nil
}

// notifyTimeout is how long a notification may take if systemd does not receive.
const notifyTimeout = 5 * time.Second

// Notify sends a state. Without systemd it does nothing. It blocks for some seconds at
// most.
func (s *Service) Notify(state string) error {
	if s.notify == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.notify, Net: "unixgram"})
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(notifyTimeout))
		if err == nil {
			_, err = conn.Write([]byte(state))
		}
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("failed to notify systemd: %w", err)
	}
	return nil
}

// AfterDone calls notify, which sends [Stopping], when ctx ends. The function that it
// returns waits for that, so that the program does not end before, or prevents it if ctx
// has not ended.
func AfterDone(ctx context.Context, notify func()) (wait func()) {
	sent := make(chan struct{})
	prevent := context.AfterFunc(ctx, func() {
		defer close(sent)
		notify()
	})
	return func() {
		if !prevent() {
			<-sent
		}
	}
}

// Restore puts the variable for notifications back into the environment, for a child that
// replaces this program as the service.
func (s *Service) Restore() {
	if s.notify != "" {
		_ = os.Setenv(notifyVariable, s.notify) // fails for invalid names
	}
}

// IsNotified reports whether systemd waits for notifications, as with Type=notify.
func (s *Service) IsNotified() bool { return s.notify != "" }

// Close closes the sockets.
func (s *Service) Close() error {
	var errs []error
	for _, socket := range s.Sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}
