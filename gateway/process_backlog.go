package gateway

import "time"

// startBacklogTimeout starts the timeout after which backlogs count as confirmed.
func (t *processTable) startBacklogTimeout() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.records {
		p.backlogSlices = backlogSlices
	}
	if t.conn.session.resumed {
		t.conn.Spawn(t.runBacklogTimeout)
	}
}

// runBacklogTimeout runs until there is no backlog. The ticker drops ticks while the
// server is stopped.
func (t *processTable) runBacklogTimeout() {
	slice := time.NewTicker(timeoutSlice)
	defer slice.Stop()
	for t.countBacklogs() {
		select {
		case <-slice.C:
		case <-t.conn.ctx.Done():
			return
		}
	}
}

// countBacklogs confirms the backlogs whose timeout has expired, counts a slice of the
// others, and reports whether there are any.
func (t *processTable) countBacklogs() (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.records {
		switch {
		case p.backlog == 0:
		case p.backlogSlices == 0:
			p.confirm(p.backlog)
			t.marks.note(p, 0, 0)
		default:
			p.backlogSlices--
			left = true
		}
	}
	return left
}
