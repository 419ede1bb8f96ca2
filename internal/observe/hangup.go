package observe

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// IgnoreHangups keeps SIGHUP from ending this program, and logs each one. One that is
// ignored already, as under nohup, stays so. The function gives the signal back and
// waits for the log; it may be called once.
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
		signal.Stop(signals)
		close(signals)
		logging.Wait()
	}
}
