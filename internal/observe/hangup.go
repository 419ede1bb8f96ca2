package observe

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// IgnoreHangups makes this program ignore SIGHUP and logs each one. If SIGHUP is
// ignored already, as under nohup, it does nothing. Call it once, as soon as there is
// a logger. stop ends the logging and waits for that; the signal stays ignored, so
// that it cannot end a program that is about to exit. Call stop when nothing is
// executed any more, because children inherit the disposition.
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
