package observe

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// IgnoreHangups keeps SIGHUP from ending this program, and logs each one. One that is
// ignored already, as under nohup, stays so. The function ends the logging and waits
// for that; the signal stays ignored, so that it does not end a program that is about
// to end. Call it once, as soon as there is a logger, and the function when nothing is
// executed any more: what is would inherit the disposition.
func IgnoreHangups(logger *slog.Logger) (stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	var logging sync.WaitGroup
	logging.Go(func() {
		for range signals {
			logger.Warn("SIGHUP is ignored: settings are read at the start, and SIGTERM ends this program")
		}
	})
	return func() {
		signal.Ignore(syscall.SIGHUP)
		close(signals)
		logging.Wait()
	}
}
