package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// errStdinEnded is why a command ends.
var errStdinEnded = errors.New("stdin has ended")

// untilEnd returns a context that ends with a file, too, whose content is read and
// has no meaning. The function gives the file back.
func untilEnd(ctx context.Context, file *os.File) (context.Context, func(), error) {
	over, wake, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("failed to watch stdin: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if readAway(int(file.Fd()), int(over.Fd())) {
			cancel(errStdinEnded)
		}
	}()
	return ctx, func() {
		_ = wake.Close()
		<-done
		_ = over.Close()
		cancel(nil)
	}, nil
}

// readAway reads a file to its end, or until another one has something to say, for
// which it returns false.
func readAway(fd, over int) bool {
	buf := make([]byte, 4096)
	for {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(over), Events: unix.POLLIN}}
		if _, err := unix.Poll(asked, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return true
		}
		if asked[1].Revents != 0 {
			return false
		}
		n, err := unix.Read(fd, buf)
		if n == 0 || err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return true
		}
	}
}
