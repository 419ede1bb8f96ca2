package rendezvous

import "time"

// eviction chooses the record that is evicted for that of another executor. Only
// executors that have been away for [Limits.evictableAfter] are candidates. The
// victim belongs to the principal with the most records; of that principal's it
// is the one that is away longest, and those that never connected go first. A
// principal with no more records than the newcomer's loses only records beyond
// its retention.
type eviction struct {
	limits    Limits
	now       time.Time
	principal string         // the newcomer's
	ownOnly   bool           // only its records are considered
	counts    map[string]int // number of records by principal
	retryIn   time.Duration  // set if there is no victim; when to try again
}

// choose returns the victim, or nil.
func (e *eviction) choose(records map[string]*entry) (victim *entry) {
	e.retryIn = maxEvictionRetry
	for _, candidate := range records {
		if e.ownOnly && candidate.record.Principal != e.principal {
			continue
		}
		if wait := e.wait(candidate); wait > 0 {
			e.retryIn = min(e.retryIn, wait)
		} else if victim == nil || e.precedes(candidate, victim) {
			victim = candidate
		}
	}
	return victim
}

// precedes reports whether a is evicted rather than b. A connected executor's
// record changes every presence interval, so a lower revision is a longer absence.
func (e *eviction) precedes(a, b *entry) bool {
	if n, m := e.counts[a.record.Principal], e.counts[b.record.Principal]; n != m {
		return n > m
	}
	if known := a.record.Connected != 0; known != (b.record.Connected != 0) {
		return !known
	}
	return a.revision < b.revision
}

// wait returns how long it takes until a record is evictable, unless its executor
// returns before.
func (e *eviction) wait(candidate *entry) time.Duration {
	away, owner := e.limits.evictableAfter(), candidate.record.Principal
	if candidate.record.Connected != 0 && owner != e.principal && e.counts[owner] <= e.counts[e.principal] {
		away = max(away, e.limits.ExecutorRetention)
	}
	return candidate.record.LastSeen.Add(away).Sub(e.now)
}

// maxEvictionRetry bounds the retry delay of a rejected executor: a record may
// become free earlier.
const maxEvictionRetry = time.Minute

// evictableAfter is how long an executor must be away before its record may be
// evicted. By then all its URLs have expired, and no node reports it as
// connected.
func (l Limits) evictableAfter() time.Duration {
	return max(l.URLLifetime, presenceIntervalsUntilAbsent*l.PresenceInterval)
}
