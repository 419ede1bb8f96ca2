package fileworker

// Ended is closed when the worker cannot be used any more.
func (l *Lease) Ended() <-chan struct{} { return l.worker.ctx.Done() }
