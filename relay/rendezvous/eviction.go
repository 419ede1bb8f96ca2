package rendezvous

import (
	"container/list"
	"time"
)

// eviction chooses the record that gives way to that of another executor. Only
// executors that are away for [Limits.evictableAfter] give way: the one of the
// principal with the most records, and of its own the one that is away longest,
// first those that never connected. A principal with no more records than the
// newcomer's gives way with what is beyond its retention.
type eviction struct {
	limits  Limits
	now     time.Time
	own     *holding // of the newcomer's principal
	chosen  *indexed
	soonest time.Duration // until one that is considered may give way; 0 if there is none
}

// consider has a record of h give way if h has more than the principal of the one
// that is chosen.
func (e *eviction) consider(h *holding) {
	if e.chosen != nil && h.count <= e.chosen.holder.count {
		return
	}
	for _, order := range []*list.List{&h.unused, &h.known} {
		front := order.Front()
		if front == nil {
			continue
		}
		one := front.Value.(*indexed)
		wait := e.wait(one)
		if wait <= 0 {
			e.chosen = one
			return
		}
		if e.soonest == 0 || wait < e.soonest {
			e.soonest = wait
		}
	}
}

// wait returns how long it takes until a record gives way, unless its executor is
// back before.
func (e *eviction) wait(one *indexed) time.Duration {
	away := e.limits.evictableAfter()
	if one.record.Connected != 0 && one.holder != e.own && one.holder.count <= e.own.count {
		away = max(away, e.limits.ExecutorRetention)
	}
	return one.record.LastSeen.Add(away).Sub(e.now)
}

// maxEvictionRetry bounds what a refused executor is told to wait: others may be
// gone before.
const maxEvictionRetry = time.Minute

func (e *eviction) retry() time.Duration {
	if e.soonest == 0 {
		return maxEvictionRetry
	}
	return min(e.soonest, maxEvictionRetry)
}

// evictableAfter is how long an executor has to be away before its record gives
// way. By then no URL that it was given lets it connect, and no node says that it
// is connected.
func (l Limits) evictableAfter() time.Duration {
	return max(l.URLLifetime, presenceIntervalsUntilAbsent*l.PresenceInterval)
}
