package observe

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// Hangups handles SIGHUP. Its methods may be called concurrently.
type Hangups struct {
	signals chan os.Signal // nil if the signal is ignored
	handle  atomic.Pointer[func()]
	serving sync.WaitGroup
}

// Starting is the reason of a program that will call [Hangups.Handle].
const Starting = "this program is starting, and reads its settings"

// NotifyHangups keeps SIGHUP from ending this program. Until [Hangups.Handle] each is
// ignored, and logged with the reason, a whole sentence. If SIGHUP is ignored already, as under nohup, it stays so. Call it once, as
// soon as there is a logger.
func NotifyHangups(logger *slog.Logger, reason string) *Hangups {
	h := &Hangups{}
	if signal.Ignored(syscall.SIGHUP) {
		return h
	}
	h.signals = make(chan os.Signal, 1)
	signal.Notify(h.signals, syscall.SIGHUP)
	h.serving.Go(func() {
		for range h.signals {
			if handle := h.handle.Load(); handle != nil {
				(*handle)()
				continue
			}
			logger.Warn("SIGHUP is ignored: " + reason)
		}
	})
	return h
}

// Handle makes later signals call handle, in one goroutine. Signals that arrive while it runs
// are one further call.
func (h *Hangups) Handle(handle func()) { h.handle.Store(&handle) }

// Stop ends the handling and waits for it. The signal stays ignored, so that it cannot end
// a program that is about to exit. Call it once, when nothing is executed any more, because
// children inherit the disposition.
func (h *Hangups) Stop() {
	if h.signals == nil {
		return
	}
	signal.Ignore(syscall.SIGHUP)
	close(h.signals)
	h.serving.Wait()
}
